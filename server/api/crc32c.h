// CRC-32C (Castagnoli): the checksum of exported sequences.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridgeline::api {

// The checksum of some bytes followed by `size_bytes` more; `crc` is that of the former, 0 for none.
std::uint32_t ExtendCrc32c(std::uint32_t crc, const void* data, std::size_t size_bytes);

// The same, bit for bit, without the processor's instruction for it.
std::uint32_t ExtendCrc32cPortably(std::uint32_t crc, const void* data, std::size_t size_bytes);

}  // namespace ridgeline::api
