#include "server/api/crc32c.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace ridgeline::api {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<std::uint32_t, 256> MakeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = MakeTable();

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t ExtendWithSse42(std::uint32_t crc, const unsigned char* bytes,
                                                                std::size_t size_bytes) {
  std::uint64_t state = ~crc;
  for (; size_bytes >= sizeof(std::uint64_t); bytes += sizeof(std::uint64_t), size_bytes -= sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    state = _mm_crc32_u64(state, word);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (; size_bytes > 0; ++bytes, --size_bytes) narrow = _mm_crc32_u8(narrow, *bytes);
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t ExtendCrc32cPortably(std::uint32_t crc, const void* data, std::size_t size_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t state = ~crc;
  for (std::size_t i = 0; i < size_bytes; ++i) state = (state >> 8) ^ kTable[(state ^ bytes[i]) & 0xff];
  return ~state;
}

std::uint32_t ExtendCrc32c(std::uint32_t crc, const void* data, std::size_t size_bytes) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ExtendWithSse42(crc, static_cast<const unsigned char*>(data), size_bytes);
#endif
  return ExtendCrc32cPortably(crc, data, size_bytes);
}

}  // namespace ridgeline::api
