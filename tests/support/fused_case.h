// A fused operation's tensors, and the judgement of its answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fused/fused.h"
#include "tests/reference/fused_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_tensor.h"

namespace ridgeline::support {

// One tensor that a launch points to, for runners that move it elsewhere.
struct FusedTensor {
  std::string name;
  void** pointer;  // in the params
  std::int64_t size_bytes;
  std::int64_t element_bytes;
  bool is_output;
};

// The tensors of a launch; pointers that are null are left out.
std::vector<FusedTensor> TensorsOf(kernels::fused::FusedParams& params);

// Owns its tensors. Inputs are random normals from the seed; outputs are NaN until something writes them. Tests may change
// inputs until params() is called; the expected answer is worked out once, when it is first asked for.
class FusedCase {
 public:
  FusedCase(const kernels::fused::FusedShape& shape, std::uint64_t seed);

  const kernels::fused::FusedShape& shape() const { return params_.shape; }
  TestTensor& input() { return input_; }
  TestTensor& other() { return other_; }
  TestTensor& weight() { return weight_; }
  TestTensor& bias() { return bias_; }
  TestTensor& keys() { return keys_; }
  std::vector<std::int64_t>& positions() { return positions_; }

  // kRopeAppend: the tokens of the rows, one span after the other, with `gap_rows` before each, into pages that nothing else
  // owns. Replaces the spans there are; num_rows is theirs.
  void Append(std::int64_t page_tokens, const std::vector<kernels::kv_cache::TokenSpan>& spans);

  const kernels::fused::FusedParams& params();
  const reference::FusedResult& want();

  // Makes every output NaN again.
  void Poison();
  // Fails unless outputs are what they should be, guards whole and inputs what they were.
  ::testing::AssertionResult IsRight(kernels::fused::Mode mode);

  std::vector<double> output() const { return Widened(output_); }
  std::vector<std::uint8_t> mask() const;

 private:
  static std::vector<double> Widened(const TestTensor& tensor);
  ::testing::AssertionResult PagesAreRight(kernels::fused::Mode mode);
  std::vector<std::vector<std::byte>> InputBytes() const;

  std::uint64_t seed_;
  kernels::fused::FusedParams params_;
  TestTensor input_, other_, weight_, bias_, output_, residual_output_;
  GuardedBuffer mask_;
  std::vector<std::int64_t> positions_;

  TestTensor keys_, values_, key_pages_, value_pages_;
  std::vector<std::int32_t> block_table_;
  std::vector<kernels::kv_cache::TokenSpan> spans_;

  bool is_filled_ = false;
  bool has_want_ = false;
  reference::FusedResult want_;
  std::vector<std::vector<std::byte>> inputs_before_;
};

}  // namespace ridgeline::support
