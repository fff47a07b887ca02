#include "tests/resilience/paced_callers.h"

#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cpp/error.h"
#include "grpcpp/grpcpp.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "tests/integration/random_attend.h"

namespace ridgeline::resilience {
namespace {

constexpr std::int64_t kTokens[] = {512, 768, 1000};
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr absl::Duration kShortestHurry = absl::Milliseconds(1);
constexpr absl::Duration kLongestHurry = absl::Milliseconds(100);

enum class Temper { kPatient, kHasDeadline, kCancels };

class Caller {
 public:
  Caller(const std::string& address, std::uint64_t seed) : generator_(seed), name_(absl::StrCat("paced-", seed % 4)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    stub_ = v1::AttentionService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  void Call(Tally& tally) {
    const KnownRequest& known = KnownRequests()[generator_() % KnownRequests().size()];
    const Temper temper = DrawTemper();
    const absl::Duration hurry = absl::Microseconds(std::uniform_int_distribution<std::int64_t>(
        absl::ToInt64Microseconds(kShortestHurry), absl::ToInt64Microseconds(kLongestHurry))(generator_));
    grpc::ClientContext context;
    context.AddMetadata("x-ridgeline-client", name_);
    context.set_deadline(absl::ToChronoTime(absl::Now() + (temper == Temper::kHasDeadline ? hurry : kPatience)));
    v1::AttendResponse response;
    grpc::Status status;
    absl::Notification ended;
    const absl::Time begin = absl::Now();
    stub_->async()->Attend(&context, &known.request, &response, [&](grpc::Status end) {
      status = std::move(end);
      ended.Notify();
    });
    if (temper == Temper::kCancels && !ended.WaitForNotificationWithTimeout(hurry)) context.TryCancel();
    ended.WaitForNotification();
    if (status.ok()) {
      tally.NoteAnswer("Attend", known.answer.IsRight(response.output()), absl::Now() - begin);
    } else {
      tally.NoteError("Attend", client::ErrorFromWire(status.error_code(), status.error_message(), status.error_details()),
                      temper == Temper::kPatient ? Tally::Hurry::kNone : Tally::Hurry::kGivesUp);
    }
  }

 private:
  Temper DrawTemper() {
    const std::uint64_t drawn = generator_() % 10;
    if (drawn == 0) return Temper::kHasDeadline;
    return drawn == 1 ? Temper::kCancels : Temper::kPatient;
  }

  std::mt19937_64 generator_;
  const std::string name_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
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

void Pace::Await() { absl::SleepFor(begin_ + next_.fetch_add(1) * interval_ - absl::Now()); }

void CallAtPace(const std::string& address, std::uint64_t seed, Pace& pace, Tally& tally, const std::atomic<bool>& ends) {
  Caller caller(address, seed);
  while (!ends) {
    pace.Await();
    caller.Call(tally);
  }
}

}  // namespace ridgeline::resilience
