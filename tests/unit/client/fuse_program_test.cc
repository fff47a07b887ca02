// `ridgeline fuse`, against a server in this process.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/program_fixture.h"

namespace ridgeline::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FuseProgramTest : public ProgramFixture {
 protected:
  FuseProgramTest() {
    server_.fuse = [this](const v1::FuseRequest& request, v1::FuseResponse* response) {
      Fuse(request, response);
      return grpc::Status::OK;
    };
  }

  Outcome Run(const std::string& arguments) const { return RunAgainst(server_.address(), arguments); }

  // Unfused takes three times as long as fused and is off by 1/4 in its first element; a second output is ones.
  void Fuse(const v1::FuseRequest& request, v1::FuseResponse* response) {
    requests_.push_back(request);
    const bool unfused = request.mode() == v1::EXECUTION_MODE_UNFUSED;
    v1::ExecutionReport& report = *response->mutable_report();
    report.set_device("Fake Device");
    report.set_bytes(unfused ? 10 << 20 : 1 << 20);
    report.mutable_kernel_time()->set_nanos(unfused ? 3'000'000 : 1'000'000);
    report.set_bytes_per_second(unfused ? 3.5e9 : 1.05e9);
    report.set_roof_fraction(0.5);
    report.set_workspace_bytes(unfused ? 2048 : 0);
    response->set_kernel_count(unfused ? 7 : 1);
    if (request.output().discard()) return;
    for (const float first : {unfused ? 1.25F : 1.0F, 1.0F}) {
      const float values[] = {first, 1, 1, 1};
      v1::Tensor& output = *response->add_outputs();
      output.set_data_type(v1::DATA_TYPE_FLOAT32);
      output.add_shape(2);
      output.add_shape(2);
      output.set_inline_data(values, sizeof(values));
    }
  }

  void WriteFloats(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) const {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    ASSERT_OK(client::WriteNpy(Path(name), {client::ElementType::kFloat32, shape, bytes}));
  }

  std::vector<v1::FuseRequest> requests_;
  client::FakeServer server_;  // last: it stops before what its handler uses goes
};

TEST_F(FuseProgramTest, ComparesBothModes) {
  const Outcome outcome = Run("fuse layer_norm --shape=2,2 --dtype=bfloat16 --repeat=2 --epsilon=0 --seed=5");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_EQ(outcome.out, R"(Fake Device
layer_norm of [2, 2], bfloat16; medians of 2 runs

  mode     kernels  bytes moved  kernel time  bandwidth  of roof  speed-up  difference  workspace
  ───────  ───────  ───────────  ───────────  ─────────  ───────  ────────  ──────────  ─────────
  unfused        7     10.0 MiB      3.00 ms  3.50 GB/s   50.0 %                         2.00 KiB
  fused          1     1.00 MiB      1.00 ms  1.05 GB/s   50.0 %    3.00 ×        0.25        0 B
)");
  ASSERT_EQ(requests_.size(), 6u);  // of each mode one for the answer, and two that are timed
  const v1::LayerNorm& op = requests_[0].layer_norm();
  EXPECT_EQ(op.input().data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_THAT(op.input().shape(), ElementsAre(2, 2));
  EXPECT_EQ(op.input().random().seed(), 5u);
  EXPECT_THAT(op.weight().shape(), ElementsAre(2));
  EXPECT_EQ(op.bias().random().seed(), 7u);
  EXPECT_TRUE(op.has_epsilon());
  EXPECT_FALSE(requests_[0].output().discard());
  EXPECT_TRUE(requests_[1].output().discard());
}

TEST_F(FuseProgramTest, PrintsForPrograms) {
  const Outcome json = Run("fuse gelu --shape=2,2 --mode=fused --repeat=1 --format=json");
  EXPECT_EQ(json.exit_status, 0) << json.err;
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"op\": \"gelu\""), HasSubstr("\"kernel_time_seconds\": 0.001"),
                              HasSubstr("\"bytes\": 1048576"), HasSubstr("\"speed_up\": null")));
  const Outcome csv = Run("fuse gelu --shape=2,2 --format=csv --nocheck");
  EXPECT_EQ(csv.exit_status, 0) << csv.err;
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 3);
  EXPECT_THAT(csv.out, AllOf(HasSubstr("speed_up"), HasSubstr("unfused,7,10485760,0.003")));
}

TEST_F(FuseProgramTest, ReadsAndWritesFiles) {
  WriteFloats("x.npy", {2, 2}, {1, 2, 3, 4});
  WriteFloats("r.npy", {2, 2}, {5, 6, 7, 8});
  WriteFloats("w.npy", {2}, {9, 10});
  const Outcome outcome =
      Run(absl::StrCat("fuse add_rms_norm --mode=fused --input=", Path("x.npy"), " --residual=", Path("r.npy"),
                       " --weight=", Path("w.npy"), " --output=", Path("y.npy"), " --sum_output=", Path("s.npy")));
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  const v1::AddRmsNorm& op = requests_[0].add_rms_norm();
  EXPECT_EQ(op.input().inline_data().size(), 16u);
  EXPECT_EQ(op.residual().inline_data().size(), 16u);
  EXPECT_EQ(op.weight().inline_data().size(), 8u);
  ASSERT_OK_AND_ASSIGN(const client::Array output, client::ReadNpy(Path("y.npy")));
  EXPECT_THAT(output.shape, ElementsAre(2, 2));
  ASSERT_OK(client::ReadNpy(Path("s.npy")));
}

TEST_F(FuseProgramTest, RotaryEmbeddingsGetThePositionsOfTheirSequences) {
  EXPECT_EQ(Run("fuse rope --shape=2,3,1,8 --mode=fused --layout=interleaved --rotary_dim=4 --first_position=10").exit_status,
            0);
  const v1::Rope& rope = requests_[0].rope();
  EXPECT_EQ(rope.layout(), v1::ROPE_LAYOUT_INTERLEAVED);
  EXPECT_EQ(rope.rotary_dim(), 4);
  EXPECT_THAT(rope.positions().shape(), ElementsAre(2, 3));
  const std::int64_t positions[] = {10, 11, 12, 10, 11, 12};
  EXPECT_EQ(rope.positions().inline_data(), std::string(reinterpret_cast<const char*>(positions), sizeof(positions)));
  EXPECT_EQ(Run("fuse rope --shape=3,1,8 --mode=fused").exit_status, 0);
  EXPECT_FALSE(requests_.back().rope().has_positions());
}

TEST_F(FuseProgramTest, AppendsOnce) {
  const std::string command = "fuse rope_append --sequence=chat/a --layer=2 --shape=1,5,32,64 --kv_heads=8 --value_head_dim=16";
  const Outcome both = Run(command);
  EXPECT_EQ(both.exit_status, 2);
  EXPECT_THAT(both.err, HasSubstr("again and again"));
  EXPECT_EQ(Run(command + " --mode=fused").exit_status, 0);
  ASSERT_EQ(requests_.size(), 1u);
  const v1::RopeAppend& append = requests_[0].rope_append();
  EXPECT_THAT(append.sequences(), ElementsAre("kvCaches/chat/sequences/a"));
  EXPECT_EQ(append.layer(), 2);
  EXPECT_THAT(append.query().shape(), ElementsAre(1, 5, 32, 64));
  EXPECT_THAT(append.new_key().shape(), ElementsAre(1, 5, 8, 64));
  EXPECT_THAT(append.new_value().shape(), ElementsAre(1, 5, 8, 16));
}

TEST_F(FuseProgramTest, ListsTheOperations) {
  v1::FusedOp& op = *server_.fused_ops.add_ops();
  op.set_name("gelu_add");
  op.set_formula("output = gelu(input) + residual");
  op.add_inputs()->set_name("input");
  op.add_inputs()->set_name("scale");
  op.mutable_inputs(1)->set_optional(true);
  op.set_unfused_kernel_count(5);
  const Outcome outcome = Run("fuse");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("gelu_add"), HasSubstr("input, [scale]"), HasSubstr("output = gelu(input) + residual")));
}

TEST_F(FuseProgramTest, WrongUseIsExplained) {
  struct Wrong {
    const char* arguments;
    const char* message;
  };
  for (const Wrong& wrong : {Wrong{"fuse layer_nrm --shape=2", "is layer_norm meant?"},
                             {"fuse gelu", "--shape is needed, or files"},
                             {"fuse gelu --shape=2 --epsilon=1", "--epsilon is not for gelu"},
                             {"fuse gelu --shape=2 --weight=w.npy", "--weight is not for gelu"},
                             {"fuse gelu --shape=2 --gelu=relu", "erf and tanh are allowed"},
                             {"fuse gelu --shape=2 --mode=half", "fused, unfused and both are allowed"},
                             {"fuse gelu --shape=2 --first_position=1", "--first_position is not for gelu"},
                             {"fuse gelu --shape=2 --repeat=0", "--repeat is 0"},
                             {"fuse rope_append --shape=1,1,1,8 --mode=fused", "needs --sequence"}}) {
    const Outcome outcome = Run(wrong.arguments);
    EXPECT_EQ(outcome.exit_status, 2) << wrong.arguments;
    EXPECT_THAT(outcome.err, HasSubstr(wrong.message));
  }
  EXPECT_TRUE(requests_.empty());
}

}  // namespace
}  // namespace ridgeline::cli
