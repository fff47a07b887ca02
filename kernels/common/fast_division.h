// Division by a number that a launch knows and the compiler does not: a multiplication and a shift.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define RIDGELINE_HOST_DEVICE __host__ __device__
#else
#define RIDGELINE_HOST_DEVICE
#endif

namespace ridgeline::kernels {

// Divides numbers in [0, 2^29] by one in [1, 2^16]. With s = max(0, ceil(log2 d) - 2) and m = floor(2^(31+s) / d) + 1,
// m·d = 2^(31+s) + e with 0 < e <= d, so n·m / 2^(31+s) exceeds n / d by n·e / (d·2^(31+s)), less than 1 / d as n·e < 2^(31+s).
class FastDivision {
 public:
  FastDivision() = default;
  explicit FastDivision(std::uint32_t divisor) : divisor_(divisor) {
    while ((std::uint32_t{4} << shift_) < divisor) ++shift_;
    multiplier_ = static_cast<std::uint32_t>((std::uint64_t{1} << (31 + shift_)) / divisor + 1);
  }

  RIDGELINE_HOST_DEVICE std::uint32_t divisor() const { return divisor_; }

  RIDGELINE_HOST_DEVICE std::uint32_t Quotient(std::uint32_t dividend) const {
    return static_cast<std::uint32_t>((std::uint64_t{2 * dividend} * multiplier_) >> 32) >> shift_;
  }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t multiplier_ = (std::uint32_t{1} << 31) + 1;
  std::uint32_t shift_ = 0;
};

}  // namespace ridgeline::kernels
