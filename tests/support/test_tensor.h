// A tensor under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/guarded_buffer.h"

namespace ridgeline::support {

// Elements of one type in guarded memory, aligned to their size and to no more, as a tensor inside a message may be.
class TestTensor {
 public:
  TestTensor() = default;
  TestTensor(kernels::DataType type, std::int64_t elements);

  void FillNormal(std::uint64_t seed);
  double Get(std::int64_t idx) const { return reference::Load(type_, buffer_.data(), idx); }
  void Set(std::int64_t idx, double value) { reference::Store(type_, static_cast<float>(value), buffer_.data(), idx); }

  kernels::DataType type() const { return type_; }
  std::int64_t elements() const { return elements_; }
  const GuardedBuffer& buffer() const { return buffer_; }
  std::span<std::byte> bytes() const { return buffer_.bytes(); }

 private:
  kernels::DataType type_ = kernels::DataType::kFloat32;
  std::int64_t elements_ = 0;
  GuardedBuffer buffer_;
};

}  // namespace ridgeline::support
