// attention_runner.h on a CUDA device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cascade/cascade.h"
#include "kernels/attention/cascade/cascade_cuda.h"
#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/flash/flash_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/prefill_sm90/prefill_plan_cuda.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/common/cuda_status.h"
#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using gpu::Check;
using gpu::GuardedDeviceArray;
using gpu::Stream;

// How far the sequences reach into each array, in elements.
struct Extents {
  std::int64_t query = 0, key = 0, value = 0, block_table = 0, bias = 0, output = 0, log_sum_exp = 0;
};

// The end of the sequence's tokens in key and value: paged, that of the last page among its own.
std::int64_t KeyEnd(const AttentionParams& params, const Sequence& sequence) {
  if (!params.shape.IsPaged()) return sequence.key_begin + sequence.key_tokens;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < CeilDivide(sequence.key_tokens, params.shape.page_tokens); ++i) {
    end = std::max(end, (params.block_table[sequence.key_begin + i] + std::int64_t{1}) * params.shape.page_tokens);
  }
  return end;
}

Extents ReadExtents(const AttentionParams& params) {
  const AttentionShape& shape = params.shape;
  std::int64_t query_tokens = 0, key_tokens = 0;
  Extents extents;
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const Sequence& sequence = params.sequences[s];
    query_tokens = std::max(query_tokens, sequence.query_begin + sequence.query_tokens);
    key_tokens = std::max(key_tokens, KeyEnd(params, sequence));
    if (shape.IsPaged()) {
      extents.block_table =
          std::max(extents.block_table, sequence.key_begin + CeilDivide(sequence.key_tokens, shape.page_tokens));
    }
    if (sequence.query_tokens == 0) continue;
    extents.log_sum_exp =
        std::max(extents.log_sum_exp,
                 sequence.lse_begin + (shape.query_heads - 1) * params.lse_head_stride_elems + sequence.query_tokens);
    if (sequence.key_tokens == 0) continue;
    extents.bias =
        std::max(extents.bias, s * params.bias_sequence_stride_elems + (shape.query_heads - 1) * params.bias_head_stride_elems +
                                   (sequence.query_tokens - 1) * params.bias_row_stride_elems + sequence.key_tokens);
  }
  extents.query = query_tokens * shape.query_heads * shape.head_dim;
  extents.key = key_tokens * shape.kv_heads * shape.head_dim;
  extents.value = key_tokens * shape.kv_heads * shape.value_head_dim;
  extents.output = query_tokens * shape.query_heads * shape.value_head_dim;
  return extents;
}

// The tensors of a run on the device, each beside the host memory that it stands for.
class DeviceTensors {
 public:
  // The device's copy of `elements` elements at `host`; null stays null.
  template <typename T>
  T* Input(T* host, std::int64_t elements, std::int64_t element_bytes) {
    return Add(host, elements * element_bytes, /*is_output=*/false);
  }
  template <typename T>
  T* Output(T* host, std::int64_t elements, std::int64_t element_bytes) {
    return Add(host, elements * element_bytes, /*is_output=*/true);
  }

  // Brings outputs home; fails if an input changed or a guard is broken.
  ::testing::AssertionResult Finish() {
    for (const Tensor& tensor : tensors_) {
      const std::string name = "tensor " + std::to_string(&tensor - tensors_.data());
      if (!tensor.array->guards_whole()) return ::testing::AssertionFailure() << name << ": guards were written to";
      if (tensor.output_home != nullptr) {
        tensor.array->Download(tensor.output_home);
      } else if (!tensor.array->Holds(tensor.input)) {
        return ::testing::AssertionFailure() << name << ": an input was written to";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  struct Tensor {
    const void* input;
    void* output_home;
    std::unique_ptr<GuardedDeviceArray> array;
  };

  template <typename T>
  T* Add(T* host, std::int64_t size_bytes, bool is_output) {
    if (host == nullptr) return nullptr;
    Tensor tensor{.input = host, .output_home = nullptr, .array = std::make_unique<GuardedDeviceArray>(size_bytes)};
    if (is_output) {
      tensor.output_home = const_cast<std::remove_const_t<T>*>(host);
    } else {
      tensor.array->Upload(host);
    }
    tensors_.push_back(std::move(tensor));
    return reinterpret_cast<T*>(tensors_.back().array->data());
  }

  std::vector<Tensor> tensors_;
};

::testing::AssertionResult Succeeded(CudaStatus status, const AttentionPlan& plan) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << plan.kernel << ": " << gpu::Describe(status);
}

CudaStatus Queue(const AttentionPlan& plan, const AttentionParams& params, const Sequence* host_sequences) {
  if (plan.algorithm == Algorithm::kStandard) {
    return LaunchStandard(plan, params, host_sequences, gpu::Cublas(), Stream(), nullptr);
  }
  if (plan.cascade != nullptr) return LaunchCascade(plan, params, Stream());
  if (plan.decode.num_blocks > 0) return LaunchDecode(plan, params, Stream());
  return LaunchFlash(plan, params, Stream());
}

// `params` and its workspaces are in the device's memory, `host_sequences` are not.
::testing::AssertionResult Launch(const AttentionPlan& plan, AttentionParams params, const Sequence* host_sequences) {
  const GuardedDeviceArray workspace(plan.workspace_bytes);
  params.workspace = plan.workspace_bytes > 0 ? workspace.data() : nullptr;
  const std::vector<std::byte> all_ones(plan.merge_workspace_bytes, std::byte{0xff});
  GuardedDeviceArray merge_workspace(plan.merge_workspace_bytes);
  merge_workspace.Upload(all_ones.data());
  params.merge_workspace = plan.merge_workspace_bytes > 0 ? merge_workspace.data() : nullptr;
  if (const auto result = Succeeded(Queue(plan, params, host_sequences), plan); !result) return result;
  if (const auto result = Succeeded(cudaStreamSynchronize(Stream()), plan); !result) return result;
  if (!workspace.guards_whole() || !merge_workspace.guards_whole()) {
    return ::testing::AssertionFailure() << plan.kernel << ": wrote past its workspace of " << plan.workspace_bytes << " and "
                                         << plan.merge_workspace_bytes << " bytes";
  }
  if (merge_workspace.Holds(all_ones.data())) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << plan.kernel << ": left something in its merge workspace";
}

}  // namespace

// With RIDGELINE_TEST_PREFILL=1 whatever the Hopper prefill kernel can compute is computed by it, though the planner would
// give most of the tests' shapes, which are small, to another.
AttentionPlan Plan(Algorithm algorithm, const AttentionParams& params) {
  const char* const wants_prefill = std::getenv("RIDGELINE_TEST_PREFILL");
  if (wants_prefill != nullptr && algorithm == Algorithm::kFlash &&
      WhyNotPrefill(params.shape, params.sequences, gpu::Limits()).empty()) {
    AttentionPlan plan = {};
    plan.algorithm = algorithm;
    PlanPrefillOnCuda(params.shape, params.sequences, gpu::Limits(), plan);
    return plan;
  }
  return PlanOnCuda(params.shape, params.sequences, algorithm, gpu::Limits());
}

::testing::AssertionResult RunKernel(const AttentionPlan& plan, const AttentionParams& params) {
  const AttentionShape& shape = params.shape;
  const Extents extents = ReadExtents(params);
  const std::int64_t element_bytes = ElementBytes(shape.data_type);
  DeviceTensors tensors;
  AttentionParams on_device = params;
  on_device.sequences = tensors.Input(params.sequences, shape.num_sequences, sizeof(Sequence));
  const std::int64_t num_prefixes = plan.cascade == nullptr ? 0 : plan.cascade->num_prefixes;
  on_device.pass_sequences = tensors.Input(params.pass_sequences, num_prefixes + shape.num_sequences, sizeof(Sequence));
  on_device.query = tensors.Input(params.query, extents.query, element_bytes);
  on_device.key = tensors.Input(params.key, extents.key, element_bytes);
  on_device.value = tensors.Input(params.value, extents.value, element_bytes);
  on_device.block_table = tensors.Input(params.block_table, extents.block_table, sizeof(std::int32_t));
  on_device.alibi_slopes = tensors.Input(params.alibi_slopes, shape.query_heads, sizeof(float));
  on_device.sink_logits = tensors.Input(params.sink_logits, shape.query_heads, sizeof(float));
  on_device.bias = tensors.Input(params.bias, extents.bias, sizeof(float));
  on_device.output = tensors.Output(params.output, extents.output, ElementBytes(shape.output_data_type));
  on_device.log_sum_exp = tensors.Output(params.log_sum_exp, extents.log_sum_exp, sizeof(float));
  const ::testing::AssertionResult result = Launch(plan, on_device, params.sequences);
  return result ? tensors.Finish() : result;
}

::testing::AssertionResult RunKernelInPlace(Algorithm algorithm, const AttentionParams& params) {
  GuardedDeviceArray sequences(params.shape.num_sequences * static_cast<std::int64_t>(sizeof(Sequence)));
  sequences.Upload(params.sequences);
  AttentionParams on_device = params;
  on_device.sequences = reinterpret_cast<const Sequence*>(sequences.data());
  return Launch(Plan(algorithm, params), on_device, params.sequences);
}

DeviceMemory::DeviceMemory(std::int64_t size_bytes) : size_bytes_(size_bytes) {
  if (cudaMalloc(&memory_, size_bytes) == cudaSuccess) return;
  memory_ = nullptr;
  (void)cudaGetLastError();  // too little memory is an answer here, not an error that a later call should meet
}

DeviceMemory::~DeviceMemory() { (void)cudaFree(memory_); }

void DeviceMemory::Write(std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  Check(cudaMemcpyAsync(static_cast<std::byte*>(memory_) + offset_bytes, bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                        Stream()),
        "upload");
  Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
}

std::vector<std::byte> DeviceMemory::Read(std::int64_t offset_bytes, std::int64_t size_bytes) const {
  std::vector<std::byte> bytes(size_bytes);
  Check(cudaMemcpyAsync(bytes.data(), static_cast<const std::byte*>(memory_) + offset_bytes, size_bytes, cudaMemcpyDeviceToHost,
                        Stream()),
        "download");
  Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  return bytes;
}

}  // namespace ridgeline::kernels::attention
