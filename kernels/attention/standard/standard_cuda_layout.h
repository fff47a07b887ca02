// Where standard attention on CUDA devices keeps what in its workspace, and which sequences it treats together.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

// Consecutive sequences of equal lengths, each as far from the one before: a dense batch is one run. Keys and values in pages
// count as they lie once gathered, in one stretch. Their scores lie one after another, [count, Hq, Sq, ScoreRowElems(Sk)].
struct SequenceRun {
  std::int64_t first_sequence;
  std::int64_t count;
  std::int64_t query_tokens;         // Sq of each
  std::int64_t key_tokens;           // Sk of each
  std::int64_t query_stride_tokens;  // from one sequence's first query to the next one's; 0 if there is one sequence
  std::int64_t first_key_token;      // in keys and values
  std::int64_t key_stride_tokens;    // like query_stride_tokens
  std::int64_t first_score;          // element of S and P
  std::int64_t first_product_token;
};

// Byte offsets, each a multiple of 64, in the order of the workspace.
struct StandardCudaLayout {
  std::int64_t scores;         // S, float32: for each sequence [Hq, Sq, ScoreRowElems(Sk)]
  std::int64_t probabilities;  // P, inputs' type, of the same shape; that of float32 replaces S in place
  std::int64_t product;        // P·V, float32 [query tokens, Hq, Dv], where cuBLAS can't write the output's type itself
  std::int64_t key;            // of pages: [key tokens, Hkv, D], inputs' type
  std::int64_t value;          // of pages: [key tokens, Hkv, Dv]
  std::int64_t total_bytes;
};

// Elements from one row of S or P to the next: every row begins at a multiple of 16 bytes.
constexpr std::int64_t ScoreRowElems(std::int64_t key_tokens) { return (key_tokens + 7) / 8 * 8; }

// What cuBLAS writes P·V as, given that it reads the inputs' type: that type itself or float32.
constexpr DataType ProductType(const AttentionShape& shape) {
  return shape.output_data_type == shape.data_type ? shape.output_data_type : DataType::kFloat32;
}

// Offsets saturate at INT64_MAX. `sequences` is host memory.
StandardCudaLayout LayOutStandardOnCuda(const AttentionShape& shape, const Sequence* sequences);

// Splits a batch into runs, in order. `sequences` is host memory.
class SequenceRuns {
 public:
  SequenceRuns(const AttentionShape& shape, const Sequence* sequences) : shape_(shape), sequences_(sequences) {}

  // Fills in the next run; false if there is none.
  bool Next(SequenceRun& run);

 private:
  // Whether the run goes on with `next`, whose predecessor is `last`.
  bool Continues(const SequenceRun& run, const Sequence& last, const Sequence& next) const;
  std::int64_t KeyStride(const Sequence& last, const Sequence& next) const;

  const AttentionShape& shape_;
  const Sequence* sequences_;
  std::int64_t next_sequence_ = 0;
  std::int64_t next_score_ = 0;
  std::int64_t next_product_token_ = 0;
  std::int64_t next_gathered_token_ = 0;
};

}  // namespace ridgeline::kernels::attention
