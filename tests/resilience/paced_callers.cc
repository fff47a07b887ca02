#include "tests/resilience/paced_callers.h"

#include <map>
#include <memory>
#include <random>
#include <thread>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "grpcpp/grpcpp.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/random_attend.h"

namespace ridgeline::resilience {
namespace {

constexpr std::int64_t kTokens[] = {512, 768, 1000};
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr absl::Duration kShortestHurry = absl::Milliseconds(1);
constexpr absl::Duration kLongestHurry = absl::Milliseconds(100);

enum class Temper { kPatient, kHasDeadline, kCancels };

struct PacedCall {
  explicit PacedCall(const KnownRequest& request) : known(request) {}

  const KnownRequest& known;
  Temper temper = Temper::kPatient;
  absl::Time begin;
  grpc::ClientContext context;
  v1::AttendResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::AttendResponse>> reader;
};

// Begins calls and waits for none, on a connection of its own.
class Caller {
 public:
  Caller(const std::string& address, std::uint64_t seed, Tally& tally)
      : generator_(seed), name_(absl::StrCat("paced-", seed)), tally_(tally) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::AttentionService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  // Until all calls are over.
  ~Caller() {
    while (!under_way_.empty()) TakeEndsUntil(absl::Now() + kLongestHurry);
    queue_.Shutdown();
    TakeEndsUntil(absl::InfiniteFuture());
  }

  void Begin() {
    const auto call = std::make_shared<PacedCall>(KnownRequests()[generator_() % KnownRequests().size()]);
    call->temper = DrawTemper();
    call->begin = absl::Now();
    const absl::Time end = call->begin + DrawHurry();
    call->context.AddMetadata("x-ridgeline-client", name_);
    call->context.set_deadline(absl::ToChronoTime(call->temper == Temper::kHasDeadline ? end : call->begin + kPatience));
    if (call->temper == Temper::kCancels) to_cancel_.emplace(end, call);
    under_way_[call.get()] = call;
    call->reader = stub_->AsyncAttend(&call->context, call->known.request, &queue_);
    call->reader->Finish(&call->response, &call->status, call.get());
  }

  void CancelWhatIsDue() {
    while (!to_cancel_.empty() && to_cancel_.begin()->first <= absl::Now()) {
      if (const auto call = to_cancel_.begin()->second.lock()) call->context.TryCancel();
      to_cancel_.erase(to_cancel_.begin());
    }
  }

  // Notes what has become of the calls that end until then.
  void TakeEndsUntil(absl::Time time) {
    void* call = nullptr;
    bool ok = false;
    while (queue_.AsyncNext(&call, &ok, absl::ToChronoTime(time)) == grpc::CompletionQueue::GOT_EVENT) {
      Note(*static_cast<const PacedCall*>(call));
      under_way_.erase(call);
    }
  }

 private:
  void Note(const PacedCall& call) {
    const grpc::Status& status = call.status;
    if (status.ok()) {
      const absl::Duration latency = absl::Now() - call.begin;
      tally_.NoteAnswer("Attend", call.known.answer.IsRight(call.response.output()), latency);
    } else {
      tally_.NoteError("Attend", client::ErrorFromWire(status.error_code(), status.error_message(), status.error_details()),
                       call.temper == Temper::kPatient ? Tally::Hurry::kNone : Tally::Hurry::kGivesUp);
    }
  }

  Temper DrawTemper() {
    const std::uint64_t drawn = generator_() % 10;
    if (drawn == 0) return Temper::kHasDeadline;
    return drawn == 1 ? Temper::kCancels : Temper::kPatient;
  }

  absl::Duration DrawHurry() {
    return absl::Microseconds(std::uniform_int_distribution<std::int64_t>(
        absl::ToInt64Microseconds(kShortestHurry), absl::ToInt64Microseconds(kLongestHurry))(generator_));
  }

  std::mt19937_64 generator_;
  const std::string name_;
  Tally& tally_;
  grpc::CompletionQueue queue_;  // of Finish, by the calls' addresses
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  std::unordered_map<void*, std::shared_ptr<PacedCall>> under_way_;
  std::multimap<absl::Time, std::weak_ptr<PacedCall>> to_cancel_;
};

}  // namespace

const std::vector<KnownRequest>& KnownRequests() {
  static const auto* const requests = [] {
    auto* const made = new std::vector<KnownRequest>;
    for (const std::int64_t tokens : kTokens) {
      const v1::AttendRequest request = RandomAttend(tokens);
      made->push_back({request, KnownAnswer(request)});
    }
    return made;
  }();
  return *requests;
}

Pace::Pace(double calls_per_second) : begin_(absl::Now()), interval_(absl::Seconds(1) / calls_per_second) {}

absl::Time Pace::Next() { return begin_ + next_.fetch_add(1) * interval_; }

void CallAtPace(const std::string& address, std::uint64_t seed, Pace& pace, Tally& tally, const std::atomic<bool>& ends) {
  Caller caller(address, seed, tally);
  while (!ends) {
    caller.TakeEndsUntil(pace.Next());
    caller.CancelWhatIsDue();
    caller.Begin();
  }
}

double MeasureCapacity(const std::string& address, int num_callers) {
  constexpr absl::Duration kTime = absl::Seconds(1);
  const std::vector<KnownRequest>& requests = KnownRequests();
  std::atomic<int> num_answered{0};
  const absl::Time begin = absl::Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < num_callers; ++i) {
    threads.emplace_back([&, i] {
      const client::Client client = integration::Connect(address);
      for (std::size_t next = static_cast<std::size_t>(i); absl::Now() < begin + kTime; ++next) {
        if (client.Attend(requests[next % requests.size()].request).ok()) ++num_answered;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return num_answered / absl::ToDoubleSeconds(absl::Now() - begin);
}

}  // namespace ridgeline::resilience
