// The program itself, as a user runs it, against a server in this process.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/npy.h"
#include "client/cpp/tensor_io.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/program_fixture.h"
#include "tests/unit/client/wire_error.h"

namespace ridgeline::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ProgramTest : public ProgramFixture {
 protected:
  ProgramTest() {
    server_.attend = [this](const auto&, const auto& request, auto* response) { return Attend(request, response); };
    server_.device.set_name("Fake Device");
  }

  Outcome Run(const std::string& arguments) const { return RunAgainst(server_.address(), arguments); }

  // Output: ones of the query's shape, 1.5 for flash in its first element. Standard refuses more than 1024 tokens.
  grpc::Status Attend(const v1::AttendRequest& request, v1::AttendResponse* response) {
    requests_.push_back(request);
    if (request.query().shape(1) >= broken_from_tokens_) return grpc::Status(grpc::INTERNAL, "a fault");
    const bool flash = request.options().algorithm() != v1::ALGORITHM_STANDARD;
    if (!flash && request.query().shape(1) > 1024) {
      return grpc::Status(grpc::RESOURCE_EXHAUSTED, "standard attention needs 8 TiB",
                          client::WireDetails(client::InfoWithReason("OUT_OF_MEMORY")));
    }
    v1::ExecutionReport& report = *response->mutable_report();
    report.set_device("Fake Device");
    report.set_algorithm(flash ? v1::ALGORITHM_FLASH : v1::ALGORITHM_STANDARD);
    report.set_kernel(flash ? "flash_kernel" : "standard_kernel");
    report.set_kernel_reason("it was asked for");
    report.set_batch_requests(1);
    report.mutable_kernel_time()->set_nanos(flash ? 1'000'000 : 2'500'000);
    report.set_flops(4'000'000);
    report.set_bytes(1 << 20);
    report.set_flops_per_second(4e9);
    report.set_bytes_per_second(1.05e9);
    report.set_arithmetic_intensity(3.81);
    report.set_bound(v1::BOUND_MEMORY);
    report.set_roof_fraction(0.5);
    report.set_workspace_bytes(2048);
    if (request.output().discard()) return grpc::Status::OK;

    std::int64_t num_elements = 1;
    for (const std::int64_t extent : request.query().shape()) num_elements *= extent;
    std::vector<float> output(num_elements, 1.0F);
    if (flash) output[0] = 1.5F;
    *response->mutable_output() = request.query();
    response->mutable_output()->set_data_type(v1::DATA_TYPE_FLOAT32);
    response->mutable_output()->set_inline_data(output.data(), output.size() * sizeof(float));
    if (request.output().log_sum_exp()) {
      const float log_sum_exp = -std::numeric_limits<float>::infinity();
      v1::Tensor& tensor = *response->mutable_log_sum_exp();
      tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
      tensor.add_shape(1);
      tensor.set_inline_data(&log_sum_exp, sizeof(log_sum_exp));
    }
    return grpc::Status::OK;
  }

  void WriteFloat64(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<double>& values) const {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
    ASSERT_OK(client::WriteNpy(Path(name), {client::ElementType::kFloat64, shape, bytes}));
  }

  static void ExpectFloats(const v1::Tensor& tensor, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    EXPECT_EQ(tensor.data_type(), v1::DATA_TYPE_FLOAT32);
    EXPECT_THAT(tensor.shape(), ElementsAreArray(shape));
    EXPECT_EQ(tensor.inline_data(), std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

  std::int64_t broken_from_tokens_ = std::numeric_limits<std::int64_t>::max();
  std::vector<v1::AttendRequest> requests_;
  client::FakeServer server_;  // last: it stops before what its handler uses goes
};

TEST_F(ProgramTest, AttendPrintsItsReport) {
  const Outcome outcome = Run("attend --random=1,4,2,8 --kv_heads=1 --causal --window_left=0 --scale=0 --algorithm=flash");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find("round trip")), R"(Attention
  elements           float32
  query              1 × 4 × 2 × 8
  key                1 × 4 × 1 × 8
  value              1 × 4 × 1 × 8
  mask               causal, window of 0 to the left

Execution
  device             Fake Device
  algorithm          flash
  kernel             flash_kernel
  why this kernel    it was asked for
  requests together  1

Time
  queue              0 s
  upload             0 s
  kernel             1.00 ms
  download           0 s
  )");
  EXPECT_THAT(outcome.out, HasSubstr(R"(
Cost
  arithmetic         4.00 MFLOP
  bytes moved        1.00 MiB
  workspace          2.00 KiB
  arithmetic rate    4.00 GFLOP/s
  bandwidth          1.05 GB/s
  intensity          3.81 FLOP/B
  bound by           memory
  share of the roof  50.0 %
)"));

  ASSERT_EQ(requests_.size(), 1);
  const v1::AttendRequest& request = requests_[0];
  EXPECT_EQ(request.query().random().seed(), 1);
  EXPECT_EQ(request.dense().key().random().seed(), 2);
  EXPECT_EQ(request.dense().value().random().seed(), 3);
  EXPECT_TRUE(request.options().causal());
  EXPECT_TRUE(request.options().has_window_left());
  EXPECT_EQ(request.options().window_left(), 0);
  EXPECT_FALSE(request.options().has_window_right());
  EXPECT_TRUE(request.options().has_scale());
  EXPECT_EQ(request.options().scale(), 0);
  EXPECT_TRUE(request.output().discard());
}

TEST_F(ProgramTest, AttendReadsAndWritesFiles) {
  WriteFloat64("q.npy", {1, 1, 1, 2}, {0.5, -2});
  const Outcome outcome =
      Run(absl::StrCat("attend --dtype=bfloat16 --key_lengths=1 --query=", Path("q.npy"), " --key=", Path("q.npy"),
                       " --value=", Path("q.npy"), " --output=", Path("o.npy"), " --log_sum_exp=", Path("l.npy")));
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  ASSERT_EQ(requests_.size(), 1);
  EXPECT_EQ(requests_[0].query().data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(requests_[0].query().inline_data(), std::string("\x00\x3f\x00\xc0", 4));
  EXPECT_THAT(requests_[0].dense().lengths(), ElementsAre(1));
  ASSERT_OK_AND_ASSIGN(const client::Array output, client::ReadNpy(Path("o.npy")));
  EXPECT_THAT(output.shape, ElementsAre(1, 1, 1, 2));
  EXPECT_EQ(client::ElementAt(output, 0), 1.5);
  ASSERT_OK_AND_ASSIGN(const client::Array log_sum_exp, client::ReadNpy(Path("l.npy")));
  EXPECT_EQ(client::ElementAt(log_sum_exp, 0), -std::numeric_limits<double>::infinity());
}

TEST_F(ProgramTest, AttendSendsWhatChangesLogits) {
  WriteFloat64("bias.npy", {1, 1, 2, 2}, {0.5, -2, 1, -std::numeric_limits<double>::infinity()});
  WriteFloat64("slopes.npy", {2}, {0.25, 0.0625});
  const Outcome outcome = Run(absl::StrCat("attend --random=1,2,2,8 --dtype=bfloat16 --bias=", Path("bias.npy"),
                                           " --alibi_slopes=", Path("slopes.npy"), " --sink_logits=1.5,-inf"));
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  ASSERT_EQ(requests_.size(), 1);
  const v1::AttentionOptions& options = requests_[0].options();
  const float infinity = std::numeric_limits<float>::infinity();
  ExpectFloats(options.bias(), {1, 1, 2, 2}, {0.5F, -2, 1, -infinity});
  ExpectFloats(options.alibi_slopes(), {2}, {0.25F, 0.0625F});
  ExpectFloats(options.sink_logits(), {2}, {1.5F, -infinity});

  Run("attend --random=1,2,2,8 --sink_logits=0,0");
  ASSERT_EQ(requests_.size(), 2);
  EXPECT_FALSE(requests_[1].options().has_bias());
  EXPECT_FALSE(requests_[1].options().has_alibi_slopes());
}

TEST_F(ProgramTest, AttendNamesTheFlagOfWrongLogits) {
  const Outcome word = Run("attend --random=1,2,2,8 --alibi_slopes=0.5,steep");
  EXPECT_EQ(word.exit_status, 2);
  EXPECT_THAT(word.err, HasSubstr("--alibi_slopes has 'steep'; float32 numbers, separated by commas, or a .npy file"));
  EXPECT_EQ(Run("attend --random=1,2,2,8 --sink_logits=1,nan").exit_status, 2);
  for (const std::string flag : {"bias", "alibi_slopes", "sink_logits"}) {
    const Outcome missing = Run(absl::StrCat("attend --random=1,2,2,8 --", flag, "=", Path("missing.npy")));
    EXPECT_EQ(missing.exit_status, 1) << flag;
    EXPECT_THAT(missing.err, HasSubstr("missing.npy: No such file")) << flag;
  }
  EXPECT_EQ(requests_.size(), 0);  // none reached the server
}

TEST_F(ProgramTest, AttendJudgesTheAnswer) {
  WriteFloat64("right.npy", {1, 1, 1, 2}, {1.5, 1});
  WriteFloat64("wrong.npy", {1, 1, 1, 2}, {1.5, 1.01});
  WriteFloat64("other.npy", {1, 1, 2}, {1.5, 1});
  const std::string attend = "attend --random=1,1,1,2 --format=json --expect=";
  const Outcome right = Run(attend + Path("right.npy"));
  EXPECT_EQ(right.exit_status, 0) << right.err;
  EXPECT_THAT(right.out, HasSubstr("\"output_within_tolerance\": true"));
  const Outcome wrong = Run(attend + Path("wrong.npy"));
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_THAT(wrong.out, HasSubstr("\"output_within_tolerance\": false"));
  EXPECT_THAT(wrong.err, AllOf(StartsWith("ridgeline: output differs from "),
                               HasSubstr("by 0.01 at element 1 (1 against 1.01)"), HasSubstr("tolerance is 0.0001")));
  EXPECT_EQ(Run(attend + Path("wrong.npy") + " --tolerance=0.02").exit_status, 0);
  const Outcome other = Run(attend + Path("other.npy"));
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.err, HasSubstr("shapes differ: [1, 1, 1, 2] against [1, 1, 2]"));
}

TEST_F(ProgramTest, CompareShowsBothAlgorithmsAndGoesOnAfterARefusal) {
  const Outcome outcome = Run("compare --lengths=128,2048 --heads=2 --head_dim=8 --repeat=2");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());  // progress is for terminals
  EXPECT_EQ(outcome.out,
            R"(Fake Device
float32, batch 1, 2 query heads, 2 key-value heads, head dimension 8, mask: none; medians of 2

  tokens  algorithm  kernel time  workspace  bandwidth    arithmetic  bound by  of roof  speed-up  difference
  ──────  ─────────  ───────────  ─────────  ─────────  ────────────  ────────  ───────  ────────  ──────────
     128  standard       2.50 ms   2.00 KiB  1.05 GB/s  4.00 GFLOP/s  memory     50.0 %
          flash          1.00 ms   2.00 KiB  1.05 GB/s  4.00 GFLOP/s  memory     50.0 %    2.50 ×        0.50
   2,048  standard       refused          —          —             —  —               —
          flash          1.00 ms   2.00 KiB  1.05 GB/s  4.00 GFLOP/s  memory     50.0 %         —           —

2,048 tokens, standard, refused: RESOURCE_EXHAUSTED: standard attention needs 8 TiB [OUT_OF_MEMORY]
)");
  EXPECT_EQ(requests_.size(), 3 * 3 + 1);
}

TEST_F(ProgramTest, CompareShowsWhatItHasWhenItBreaksOff) {
  broken_from_tokens_ = 256;
  const Outcome broken = Run("compare --lengths=128,256,512 --heads=1 --head_dim=8 --repeat=1");
  EXPECT_EQ(broken.exit_status, 1);
  EXPECT_THAT(broken.out, AllOf(HasSubstr("  128  standard"), Not(HasSubstr("  256  standard"))));
  EXPECT_EQ(broken.err, "ridgeline: INTERNAL: a fault\n");
  const Outcome nothing = Run("compare --lengths=512 --heads=1 --head_dim=8 --repeat=1");
  EXPECT_EQ(nothing.exit_status, 1);
  EXPECT_THAT(nothing.out, IsEmpty());
}

TEST_F(ProgramTest, CompareInCsvRepeatsTheSettings) {
  const Outcome outcome = Run("compare --lengths=128 --heads=4 --kv_heads=2 --head_dim=8 --repeat=1 --causal --format=csv");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              StartsWith("device,data_type,batch,query_heads,kv_heads,head_dim,value_head_dim,mask,runs,tokens,algorithm,"
                         "kernel_time_seconds,workspace_bytes,bytes_per_second,flops_per_second,bound,roof_fraction,"
                         "speed_up,max_abs_difference,"));
  EXPECT_THAT(outcome.out,
              HasSubstr("\nFake Device,float32,1,4,2,8,8,causal,1,128,standard,0.0025,2048,1.05e+09,4e+09,memory,0.5,,,"));
  EXPECT_THAT(outcome.out,
              HasSubstr("\nFake Device,float32,1,4,2,8,8,causal,1,128,flash,0.001,2048,1.05e+09,4e+09,memory,0.5,2.5,0.5,"));
}

TEST_F(ProgramTest, LoadSendsWhatItsFlagsSay) {
  const Outcome outcome = Run(
      "load --shapes=2,64,4,8 --kv_heads=2 --decode_share=1 --context=fixed:300 --causal --dtype=bfloat16 --algorithm=flash "
      "--warm_up=0s --duration=500ms --format=csv");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());  // progress is for terminals
  EXPECT_THAT(
      outcome.out,
      AllOf(StartsWith("device,loop,clients,target_requests_per_second,max_in_flight,channels,shapes,decode_share,context,"
                       "data_type,mask,algorithm,paged,decode_tokens,trace,layers,page_tokens,caches,cancel_share,"
                       "timeout_seconds,seed,warm_up_seconds,duration_seconds,warm_up_requests,sent,"),
            HasSubstr("\nFake Device,closed,1,,,1,\"2,64,4,8\",1,fixed:300,bfloat16,causal,flash,false,,,,,,,300,1,0,0.5,0,")));
  ASSERT_FALSE(requests_.empty());
  const v1::AttendRequest& request = requests_.back();
  EXPECT_THAT(request.query().shape(), ElementsAre(2, 1, 4, 8));
  EXPECT_THAT(request.dense().key().shape(), ElementsAre(2, 300, 2, 8));
  EXPECT_EQ(request.query().data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(request.options().algorithm(), v1::ALGORITHM_FLASH);
  EXPECT_TRUE(request.options().causal());
  EXPECT_TRUE(request.output().discard());
}

TEST_F(ProgramTest, LoadFailsWhenRequestsFailUnlessRefusalsAreAllowed) {
  const std::string load =
      "load --shapes=1,2048,1,8 --algorithm=standard --rate=20 --max_in_flight=1 --warm_up=0s --duration=500ms";
  const Outcome refused = Run(load);
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.out, ContainsRegex("RESOURCE_EXHAUSTED +[0-9]+\n"));
  EXPECT_THAT(refused.err, HasSubstr("requests failed: "));
  EXPECT_THAT(refused.err, HasSubstr("the first: RESOURCE_EXHAUSTED: standard attention needs 8 TiB [OUT_OF_MEMORY]\n"));
  const Outcome allowed = Run(absl::StrCat(load, " --allow_refused"));
  EXPECT_EQ(allowed.err, "ridgeline: no request was answered\n");
}

TEST_F(ProgramTest, LoadNamesTheFlagThatIsWrong) {
  const struct {
    std::string flags;
    std::string message;
  } kCases[] = {
      {"--clients=0", "--clients is 0; 1 to 1024 is allowed"},
      {"--rate=0", "--rate is 0; more than 0 to 1,000,000 requests a second are allowed"},
      {"--rate=nan", "--rate is nan"},
      {"--rate=5 --max_in_flight=2000", "--max_in_flight is 2000; 1 to 1024 is allowed"},
      {"--rate=5 --clients=2", "--clients and --rate are both given"},
      {"--drain=1s", "--rate is missing"},
      {"--rate=5 --drain=-1s", "--drain is -1s; 0 to 24h is allowed"},
      {"--channels=65", "--channels is 65; 0 to 64 is allowed"},
      {"--duration=0s", "--duration is 0; more than 0 to 24h is allowed"},
      {"--warm_up=inf", "--warm_up is inf; 0 to 24h is allowed"},
      {"--shapes=1,2", "--shapes has 2 extents"},
      {"--decode_share=1.5", "--decode_share is 1.5; 0 to 1 is allowed"},
      {"--context=fixed:5", "--decode_share above 0 is missing"},
      {"--decode_share=1 --context=zipf:2", "--context is 'zipf:2'"},
      {"--decode_tokens=fixed:5", "--decode_tokens is for sessions over KV caches; --paged is missing"},
      {"--layers=2", "--layers is for sessions over KV caches"},
      {"--trace=/nowhere", "--trace is for sessions over KV caches"},
      {"--paged --shapes=2,64,4,8", "with --paged one shape of batch 1 is allowed"},
      {"--paged --shapes=1,64,4,8/1,32,4,8", "with --paged one shape of batch 1 is allowed"},
      {"--paged --layers=0", "--layers is 0; 1 to 4096 is allowed"},
      {"--paged --page_tokens=257", "--page_tokens is 257; 1 to 256 is allowed"},
      {"--paged --capacity_pages=-1", "--capacity_pages is -1; 0 to 2147483648 is allowed"},
      {"--paged --clients=4 --caches=5", "--caches is 5; 1 to 4 is allowed"},
      {"--paged --decode_tokens=5", "--decode_tokens is '5'"},
      {"--paged --session_end=fork", "--session_end is 'fork'; truncate and recreate are allowed"},
      {"--paged --cancel_share=nan", "--cancel_share is nan; 0 to 1 is allowed"},
      {"--paged --rate=5 --session_end=recreate", "sessions of an open loop are deleted"},
      {"--paged --rate=5 --decode_share=0.5", "--decode_share is for a closed loop"},
      {"--paged --rate=5 --trace=/nowhere", "--rate and --trace are both given"},
      {"--paged --clients=5 --trace=/nowhere", "--clients and --trace are both given"},
  };
  for (const auto& [flags, message] : kCases) {
    const Outcome outcome = Run(absl::StrCat("load ", flags));
    EXPECT_EQ(outcome.exit_status, 2) << flags;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  EXPECT_EQ(requests_.size(), 0);  // none reached the server
}

TEST_F(ProgramTest, DeviceShowsItsRoofs) {
  server_.device.set_type(v1::DEVICE_TYPE_CPU);
  server_.device.set_l1_cache_bytes(32 << 10);
  server_.roofline.set_bytes_per_second(20e9);
  v1::ComputeRoof* roof = server_.roofline.add_compute_roofs();
  roof->set_data_type(v1::DATA_TYPE_FLOAT32);
  roof->set_flops_per_second(100e9);
  roof->set_theoretical_flops_per_second(125e9);
  roof->set_ridge_point_flops_per_byte(5);
  const Outcome outcome = Run("device");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\n  L1 data cache        32.0 KiB\n  L2 cache             —\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\n  elements     measured    in theory  reached  ridge point\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\n  float32   100 GFLOP/s  125 GFLOP/s   80.0 %  5.00 FLOP/B\n"));
}

TEST_F(ProgramTest, DeviceShowsTheStateOfAGpu) {
  server_.device.set_type(v1::DEVICE_TYPE_CUDA);
  EXPECT_THAT(Run("device").out, Not(HasSubstr("\nGPU\n"))) << "monitoring says nothing";
  v1::GpuStatus& gpu = *server_.device.mutable_gpu();
  gpu.set_uuid("GPU-1234");
  gpu.set_sm_clock_mhz(1980);
  const Outcome cool = Run("device");
  EXPECT_THAT(cool.out, AllOf(HasSubstr("\nGPU\n"), ContainsRegex("UUID +GPU-1234\n"), ContainsRegex("SM clock, MHz +1,980\n"),
                              ContainsRegex("power, W +—\n"), ContainsRegex("clocks held down by +nothing\n")));
  gpu.add_throttle_reasons("sw_power_cap");
  gpu.add_throttle_reasons("hw_slowdown");
  gpu.set_power_watts(699.5);
  const Outcome hot = Run("device --format=json");
  EXPECT_THAT(hot.out,
              AllOf(HasSubstr("\"power_watts\": 699.5"), HasSubstr("\"throttle_reasons\": \"sw_power_cap, hw_slowdown\"")));
}

TEST_F(ProgramTest, MemoryShowsActsAndWhatTheyGaveBack) {
  server_.memory_stats.set_allocated_bytes(1 << 20);
  server_.memory_stats.set_limit_bytes(2 << 20);
  const Outcome plain = Run("memory --format=json");
  EXPECT_THAT(plain.out, AllOf(HasSubstr("\"allocated_bytes\": 1048576,"), Not(HasSubstr("released_bytes"))));
  EXPECT_EQ(server_.num_resets(), 0);
  const Outcome acted = Run("memory --empty_cache --reset_peaks");
  EXPECT_EQ(acted.exit_status, 0) << acted.err;
  EXPECT_THAT(acted.out, AllOf(HasSubstr("released"), HasSubstr("4.00 KiB"), HasSubstr("█ allocated 1.00 MiB")));
  EXPECT_EQ(server_.num_resets(), 1);
}

TEST_F(ProgramTest, MemoryDrawsSegmentsAndWritesSnapshots) {
  v1::MemorySegment& segment = *server_.memory_snapshot.add_segments();
  segment.set_address(0x7f0000000000);
  segment.set_size_bytes(2 << 20);
  segment.add_blocks()->set_size_bytes(2 << 20);
  server_.memory_snapshot.set_file("the file");
  EXPECT_THAT(Run("memory").out, AllOf(HasSubstr("0x7f0000000000"), HasSubstr("█ allocated   ▒ in part")));
  const Outcome written = Run("memory snapshot " + Path("memory.pickle"));
  EXPECT_EQ(written.exit_status, 0) << written.err;
  EXPECT_EQ(Content("memory.pickle"), "the file");
  EXPECT_EQ(Run("memory snapshot").exit_status, 2);
  EXPECT_EQ(Run("memory snapshot /no/such/folder/file").exit_status, 1);
}

TEST_F(ProgramTest, PlanReadsAConfigAndShowsWhatFits) {
  v1::PlanMemoryRequest request;
  server_.memory_plan = [&request](const v1::PlanMemoryRequest& got) {
    request = got;
    v1::MemoryPlan plan;
    plan.set_total_bytes(1000);
    plan.set_largest_batch(12);
    v1::MemoryTerm& term = *plan.add_terms();
    term.set_name("weights");
    term.set_bytes(1000);
    term.set_formula("e N / (t p)");
    v1::MemoryLever& lever = *plan.add_levers();
    lever.set_name("zero=3");
    lever.set_saved_bytes(500);
    return plan;
  };
  std::ofstream(Path("config.json")) << R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})";
  const Outcome outcome =
      Run("plan --config=" + Path("config.json") + " --model=kv_heads=2 --optimizer=adam --sharding=data=8,zero=1 --batch=3");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  EXPECT_EQ(request.model().hidden_size(), 64);
  EXPECT_EQ(request.model().kv_heads(), 2);
  EXPECT_EQ(request.optimizer(), v1::OPTIMIZER_ADAM);
  EXPECT_EQ(request.sharding().zero_stage(), v1::ZERO_STAGE_OPTIMIZER);
  EXPECT_EQ(request.batch(), 3);
  EXPECT_EQ(request.context_tokens(), 2048);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("weights"), HasSubstr("e N / (t p)"), HasSubstr("zero=3"), HasSubstr("12")));
  EXPECT_EQ(Run("plan").exit_status, 2);
  EXPECT_EQ(Run("plan --config=/no/such/file").exit_status, 2);
  EXPECT_EQ(Run("plan --model=layers=1 --optimizer=adamw").exit_status, 2);
}

TEST_F(ProgramTest, HealthIsAnExitStatus) {
  EXPECT_EQ(Run("health").exit_status, 0);
  server_.health().SetServingStatus(false);
  const Outcome outcome = Run("health");
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_EQ(outcome.err, "ridgeline: FAILED_PRECONDITION: the server is not serving\n");
}

TEST_F(ProgramTest, ErrorsAreOneLineAndAHint) {
  const Outcome outcome = Run("--address=127.0.0.1:1 device");  // the later --address counts
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err,
              AllOf(StartsWith("ridgeline: UNAVAILABLE: "),
                    HasSubstr("\nIs the daemon running at 127.0.0.1:1? `ridgelined --listen=127.0.0.1:1` starts it.\n")));
  WriteFloat64("q.npy", {1, 1, 1, 2}, {0.5, -2});
  const Outcome float64 =
      Run(absl::StrCat("attend --query=", Path("q.npy"), " --key=", Path("q.npy"), " --value=", Path("q.npy")));
  EXPECT_EQ(float64.exit_status, 2);
  EXPECT_THAT(float64.err, HasSubstr("convert it with --dtype=float32"));
}

TEST_F(ProgramTest, WrongCommandLinesEndWithTwo) {
  EXPECT_THAT(Run("atend").err, StartsWith("ridgeline: there is no command atend; did you mean attend?\n"));
  for (const std::string arguments : {"", "atend", "attend", "attend --random=1,2", "attend --lengths=1", "device extra",
                                      "device --format=xml", "compare --repeat=0", "compare --lengths=0", "compare --lengths=",
                                      "attend --random=1,1,1,8 --query=q.npy", "device --address=nowhere"}) {
    EXPECT_EQ(Run(arguments).exit_status, 2) << arguments;
  }
  EXPECT_EQ(Run("help").exit_status, 0);
  EXPECT_EQ(Run("attend --help").exit_status, 0);
  EXPECT_EQ(requests_.size(), 0);  // none reached the server
}

}  // namespace
}  // namespace ridgeline::cli
