#include "kernels/attention/standard/standard_cuda.h"

#include <cstddef>
#include <cstdint>

#include "kernels/attention/standard/standard_cuda_gather.h"
#include "kernels/attention/standard/standard_cuda_layout.h"
#include "kernels/attention/standard/standard_cuda_products.h"
#include "kernels/attention/standard/standard_cuda_rows.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

// Tokens of one sequence. The kernels count keys in int and step over the last one by less than a chunk.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 30;

class StandardLauncher {
 public:
  StandardLauncher(const AttentionParams& params, const Sequence* host_sequences, const Cublas& cublas, cudaStream_t stream)
      : given_(params),
        shape_(params.shape),
        host_sequences_(host_sequences),
        cublas_(cublas),
        stream_(stream),
        layout_(LayOutStandardOnCuda(params.shape, host_sequences)),
        params_(params) {
    if (!shape_.IsPaged()) return;
    params_.key = At(params.workspace, layout_.key);
    params_.value = At(params.workspace, layout_.value);
  }

  CudaStatus GatherPages() const {
    if (!shape_.IsPaged()) return {};
    return ForEachRun([this](const SequenceRun& run, const RunMatrices&) -> CudaStatus {
      return LaunchGatherRun(given_, run, const_cast<void*>(params_.key), const_cast<void*>(params_.value), stream_);
    });
  }

  CudaStatus MultiplyQueryKeys() const {
    return ForEachRun([this](const SequenceRun& run, const RunMatrices& matrices) -> CudaStatus {
      if (run.key_tokens == 0) return {};
      return MultiplyQueryKey(shape_, run, matrices, cublas_);
    });
  }

  CudaStatus SoftmaxRows() const {
    return ForEachRun([this](const SequenceRun& run, const RunMatrices& matrices) -> CudaStatus {
      return LaunchSoftmax(params_, run, matrices.scores, matrices.probabilities, stream_);
    });
  }

  CudaStatus MultiplyValues() const {
    return ForEachRun([this](const SequenceRun& run, const RunMatrices& matrices) -> CudaStatus {
      if (run.key_tokens > 0) {
        const cublasStatus_t status = MultiplyProbabilityValue(shape_, run, matrices, cublas_);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
      }
      return LaunchFinishOutput(params_, run, matrices.probabilities, matrices.product, stream_);
    });
  }

  CudaStatus CheckLengths() const {
    return ForEachRun([](const SequenceRun& run, const RunMatrices&) -> CudaStatus {
      const bool fits = run.query_tokens <= kMaxTokens && run.key_tokens <= kMaxTokens;
      return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    });
  }

 private:
  // visit(run, matrices), as far as it succeeds, for each run that has queries.
  template <typename Visit>
  CudaStatus ForEachRun(const Visit& visit) const {
    SequenceRuns runs(shape_, host_sequences_);
    for (SequenceRun run; runs.Next(run);) {
      if (run.query_tokens == 0) continue;
      if (const CudaStatus status = visit(run, MatricesOf(run)); !status.ok()) return status;
    }
    return {};
  }

  RunMatrices MatricesOf(const SequenceRun& run) const {
    const Sequence& first = host_sequences_[run.first_sequence];
    const std::int64_t type_bytes = ElementBytes(shape_.data_type);
    const std::int64_t product_row_bytes = shape_.query_heads * shape_.value_head_dim * ElementBytes(ProductType(shape_));
    const bool is_apart = ProductType(shape_) != shape_.output_data_type;
    return {.query = At(params_.query, first.query_begin * shape_.query_heads * shape_.head_dim * type_bytes),
            .key = At(params_.key, run.first_key_token * shape_.kv_heads * shape_.head_dim * type_bytes),
            .value = At(params_.value, run.first_key_token * shape_.kv_heads * shape_.value_head_dim * type_bytes),
            .scores = static_cast<float*>(At(params_.workspace, layout_.scores)) + run.first_score,
            .probabilities = At(params_.workspace, layout_.probabilities + run.first_score * type_bytes),
            .product = is_apart ? At(params_.workspace, layout_.product + run.first_product_token * product_row_bytes)
                                : At(params_.output, first.query_begin * product_row_bytes),
            .product_stride_tokens = is_apart ? run.query_tokens : run.query_stride_tokens};
  }

  static const void* At(const void* memory, std::int64_t offset_bytes) {
    return static_cast<const std::byte*>(memory) + offset_bytes;
  }
  static void* At(void* memory, std::int64_t offset_bytes) { return static_cast<std::byte*>(memory) + offset_bytes; }

  const AttentionParams& given_;
  const AttentionShape& shape_;
  const Sequence* const host_sequences_;
  const Cublas& cublas_;
  const cudaStream_t stream_;
  const StandardCudaLayout layout_;
  AttentionParams params_;  // as given, but with keys and values in one stretch: those of pages in the workspace
};

}  // namespace

CudaStatus LaunchStandard(const AttentionPlan& /*plan*/, const AttentionParams& params, const Sequence* host_sequences,
                          const Cublas& cublas, cudaStream_t stream, const PhaseEnd& phase_end) {
  const StandardLauncher launcher(params, host_sequences, cublas, stream);
  if (const CudaStatus status = launcher.CheckLengths(); !status.ok()) return status;
  // A product of few rows is split along its depth; its parts must be summed in float32, whatever the result's type.
  const cublasStatus_t math_mode =
      cublas.functions->set_math_mode(cublas.handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  if (math_mode != CUBLAS_STATUS_SUCCESS) return math_mode;

  struct Phase {
    const char* name;
    CudaStatus (StandardLauncher::*launch)() const;
  };
  if (const CudaStatus status = launcher.GatherPages(); !status.ok()) return status;  // a part of the first phase
  constexpr Phase kPhases[] = {{"scores", &StandardLauncher::MultiplyQueryKeys},
                               {"softmax", &StandardLauncher::SoftmaxRows},
                               {"values", &StandardLauncher::MultiplyValues}};
  for (const Phase& phase : kPhases) {
    if (const CudaStatus status = (launcher.*phase.launch)(); !status.ok()) return status;
    if (phase_end == nullptr) continue;
    if (const cudaError_t error = phase_end(phase.name); error != cudaSuccess) return error;
  }
  return {};
}

}  // namespace ridgeline::kernels::attention
