#include "server/engine/random_rows.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/common/executor.h"
#include "kernels/microbench/microbench.h"

namespace ridgeline::engine {
namespace {

// A decode step of 32 heads of 128 elements has 4096; making them takes some ten microseconds.
constexpr std::int64_t kMaxElements = 1 << 14;

class CallersThread final : public kernels::Executor {
 public:
  int num_slots() const override { return 1; }
  void ParallelFor(std::int64_t num_tasks, kernels::TaskRef task) override {
    for (std::int64_t i = 0; i < num_tasks; ++i) task(i, 0);
  }
  bool cancelled() const override { return false; }
};

}  // namespace

void MakeSmallRandomInline(TensorSource& tensor) {
  const auto* random = std::get_if<RandomFill>(&tensor.storage);
  if (random == nullptr || tensor.elements == 0 || tensor.elements > kMaxElements) return;
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor.size_bytes());
  CallersThread executor;
  kernels::microbench::FillNormalOnCpu(tensor.data_type, tensor.elements, random->seed, static_cast<float>(random->mean),
                                       static_cast<float>(random->standard_deviation), bytes->data(), executor);
  InlineData data;
  data.slices = {{bytes->data(), tensor.size_bytes()}};
  data.size_bytes = tensor.size_bytes();
  data.owner = std::move(bytes);
  tensor.storage = std::move(data);
}

}  // namespace ridgeline::engine
