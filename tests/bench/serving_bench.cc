// What serving costs beside gRPC itself: Attend calls to a real daemon and the same bytes to a bare gRPC server, in turn, over
// unix sockets, through the same raw client.
//
//   serving_bench --daemon=build/release/bin/ridgelined
//
// Or that server alone, as CSV: how long a message of these sizes takes there and back, in a call of its own and on a stream.
//
//   serving_bench --round_trip=12500,8500
#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "ridgeline/v1/attention.pb.h"
#include "tests/bench/echo_server.h"
#include "tests/bench/samples.h"

ABSL_FLAG(std::string, daemon, "", "Path of ridgelined.");
ABSL_FLAG(std::vector<std::string>, round_trip, {}, "Bytes of a request and of its answer: time the bare server alone.");
ABSL_FLAG(double, seconds, 3, "Time for each row, at least.");
ABSL_FLAG(std::string, echo, "", "Internal: be the bare server on this address.");
ABSL_FLAG(long, response_bytes, 0, "Internal: what the bare server answers.");

namespace ridgeline::bench {
namespace {

constexpr char kAttendStream[] = "/ridgeline.v1.AttentionService/AttendStream";
constexpr char kAttend[] = "/ridgeline.v1.AttentionService/Attend";

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "serving_bench: %s\n", message.c_str());
  std::exit(1);
}

// A child process that ends with this object.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command) {
    if (pipe2(stdin_pipe_, O_CLOEXEC) != 0) Die("pipe failed");
    pid_ = fork();
    if (pid_ < 0) Die("fork failed");
    if (pid_ == 0) Exec(command);
    close(stdin_pipe_[0]);
  }
  ~Child() {
    close(stdin_pipe_[1]);
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  [[noreturn]] void Exec(const std::vector<std::string>& command) {
    dup2(stdin_pipe_[0], STDIN_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }

  int stdin_pipe_[2];
  pid_t pid_;
};

// One channel, whole messages as raw bytes.
class RawClient {
 public:
  explicit RawClient(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    if (!channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30))) {
      Die(absl::StrCat("no server at ", address));
    }
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
  }

  grpc::ByteBuffer Call(const grpc::ByteBuffer& request) {
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    grpc::Status status;
    absl::Notification done;
    stub_->UnaryCall(&context, kAttend, grpc::StubOptions(), &request, &response, [&](grpc::Status s) {
      status = std::move(s);
      done.Notify();
    });
    done.WaitForNotification();
    if (!status.ok()) Die(absl::StrCat("call failed: ", status.error_message()));
    return response;
  }

  grpc::GenericStub& stub() { return *stub_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

// One stream, a message there and one back at a time.
class RawStream {
 public:
  explicit RawStream(RawClient& client) : call_(client.stub().PrepareCall(&context_, kAttendStream, &queue_)) {
    call_->StartCall(this);
    Await(1);
  }
  ~RawStream() {
    grpc::Status status;
    call_->WritesDone(this);
    call_->Finish(&status, this);
    Await(2);
    if (!status.ok()) Die(absl::StrCat("stream failed: ", status.error_message()));
  }
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  void Exchange(const grpc::ByteBuffer& request) {
    grpc::ByteBuffer response;
    call_->Read(&response, this);
    call_->Write(request, this);
    Await(2);
  }

 private:
  void Await(int num_events) {
    for (; num_events > 0; --num_events) {
      void* tag;
      bool ok;
      if (!queue_.Next(&tag, &ok) || !ok) Die("stream broke off");
    }
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

struct Shape {
  std::string name;
  long query_tokens, key_tokens, heads, head_dim;
};

v1::Tensor RandomFloat32(long tokens, long heads, long head_dim, int seed) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
  for (long extent : {1L, tokens, heads, head_dim}) tensor.add_shape(extent);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(tokens * heads * head_dim);
  for (float& value : values) value = normal(generator);
  tensor.set_inline_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

grpc::ByteBuffer MakeRequest(const Shape& shape) {
  v1::AttendRequest request;
  *request.mutable_query() = RandomFloat32(shape.query_tokens, shape.heads, shape.head_dim, 1);
  *request.mutable_dense()->mutable_key() = RandomFloat32(shape.key_tokens, shape.heads, shape.head_dim, 2);
  *request.mutable_dense()->mutable_value() = RandomFloat32(shape.key_tokens, shape.heads, shape.head_dim, 3);
  grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

void PrintRow(const Shape& shape, std::size_t request_bytes, std::size_t response_bytes, const Summary& attend,
              const Summary& echo) {
  const double moved = static_cast<double>(request_bytes + response_bytes);
  std::printf("| %-28s | %9zu | %9zu | %8.1f | %8.1f | %8.1f | %8.1f | %5.2f | %6.2f | %6.2f |\n", shape.name.c_str(),
              request_bytes, response_bytes, attend.median_seconds * 1e6, attend.p95_seconds * 1e6, echo.median_seconds * 1e6,
              echo.p95_seconds * 1e6, attend.median_seconds / echo.median_seconds, moved / attend.median_seconds / 1e9,
              moved / echo.median_seconds / 1e9);
}

void Measure(const Shape& shape, const std::string& self, const std::string& scratch, RawClient& daemon) {
  const grpc::ByteBuffer request = MakeRequest(shape);
  const std::size_t response_bytes = daemon.Call(request).Length();
  const std::string address = absl::StrCat("unix:", scratch, "/echo.sock");
  Child echo_process({self, absl::StrCat("--echo=", address), absl::StrCat("--response_bytes=", response_bytes)});
  RawClient echo(address);
  const std::vector<Summary> summaries =
      TimeInTurn({[&] { daemon.Call(request); }, [&] { echo.Call(request); }}, 20, absl::GetFlag(FLAGS_seconds));
  PrintRow(shape, request.Length(), response_bytes, summaries[0], summaries[1]);
}

int RunRoundTrip(const std::string& self, const std::vector<std::string>& bytes) {
  long request_bytes, response_bytes;
  if (bytes.size() != 2 || !absl::SimpleAtoi(bytes[0], &request_bytes) || !absl::SimpleAtoi(bytes[1], &response_bytes) ||
      request_bytes < response_bytes || response_bytes < 0) {
    Die("--round_trip=REQUEST,RESPONSE takes the bytes of a request and of an answer that is no longer");
  }
  char scratch_template[] = "/tmp/serving_bench.XXXXXX";
  const std::string scratch = mkdtemp(scratch_template);
  {
    const std::string address = absl::StrCat("unix:", scratch, "/echo.sock");
    Child echo_process({self, absl::StrCat("--echo=", address), absl::StrCat("--response_bytes=", response_bytes)});
    RawClient client(address);
    RawStream stream(client);
    grpc::Slice slice(std::string(request_bytes, 'x'));
    const grpc::ByteBuffer request(&slice, 1);
    const std::vector<Summary> summaries =
        TimeInTurn({[&] { client.Call(request); }, [&] { stream.Exchange(request); }}, 200, absl::GetFlag(FLAGS_seconds));
    std::printf("call,request_bytes,response_bytes,p50_us,p95_us\n");
    for (const auto& [call, summary] : {std::pair("unary", summaries[0]), std::pair("stream", summaries[1])}) {
      std::printf("%s,%ld,%ld,%.2f,%.2f\n", call, request_bytes, response_bytes, summary.median_seconds * 1e6,
                  summary.p95_seconds * 1e6);
    }
  }
  std::filesystem::remove_all(scratch);
  return 0;
}

int Run(const std::string& self) {
  const std::string daemon_path = absl::GetFlag(FLAGS_daemon);
  if (daemon_path.empty()) Die("--daemon=PATH of ridgelined is required");
  char scratch_template[] = "/tmp/serving_bench.XXXXXX";
  const std::string scratch = mkdtemp(scratch_template);
  {
    const std::string address = absl::StrCat("unix:", scratch, "/daemon.sock");
    Child daemon_process({daemon_path, absl::StrCat("--listen=", address), "--metrics_listen="});
    RawClient daemon(address);
    std::printf(
        "| Attend, float32, 1 channel   | request B |  answer B | p50 us   | p95 us   | echo p50 | echo p95 | ratio | GB/s   | "
        "echo   |\n");
    std::printf(
        "|------------------------------|-----------|-----------|----------|----------|----------|----------|-------|--------|-"
        "-------|\n");
    for (const Shape& shape : std::vector<Shape>{{"tiny: B1 S64 H1 D64", 64, 64, 1, 64},
                                                 {"decode: Sq1 Sk1024 H8 D64", 1, 1024, 8, 64},
                                                 {"16 MiB up: K, V of 8 MiB", 1, 4096, 8, 64},
                                                 {"16 MiB up and down: Q, O", 8192, 1, 8, 64},
                                                 {"64 MiB up: K, V of 32 MiB", 1, 16384, 8, 64},
                                                 {"64 MiB up and down: Q, O", 32768, 1, 8, 64}}) {
      Measure(shape, self, scratch, daemon);
    }
  }
  std::filesystem::remove_all(scratch);
  return 0;
}

}  // namespace
}  // namespace ridgeline::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (const std::string address = absl::GetFlag(FLAGS_echo); !address.empty()) {
    return ridgeline::bench::RunEchoServer(address, absl::GetFlag(FLAGS_response_bytes));
  }
  if (const std::vector<std::string> bytes = absl::GetFlag(FLAGS_round_trip); !bytes.empty()) {
    return ridgeline::bench::RunRoundTrip(argv[0], bytes);
  }
  return ridgeline::bench::Run(argv[0]);
}
