#include "tests/resilience/decoding_callers.h"

#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/resilience/known_answer.h"

namespace ridgeline::resilience {
namespace {

using integration::RandomTokens;
using integration::Tokens;

constexpr std::int64_t kPromptTokens = 6;
constexpr std::int64_t kMostTokens = 40;
constexpr std::int64_t kCapacityPages = 16;
constexpr std::uint64_t kStepsOfAStream = 12;  // one in so many breaks off
constexpr std::uint64_t kNames = 8;            // of callers
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr absl::Duration kPause = absl::Milliseconds(5);

class Session {
 public:
  Session(const std::string& address, std::uint64_t seed, Tally& tally, const std::atomic<bool>& ends)
      : address_(address), seed_(seed), generator_(seed), tally_(tally), ends_(ends) {}

  void Run() {
    if (!Begin()) return;
    while (WantsMore()) {
      StepOnAStream();
      if (!GoOnWithFork()) return;
    }
    Await("DeleteKvCache", [&] { return client_->DeleteKvCache(cache_); });
  }

 private:
  bool Begin() {
    const std::string name = absl::StrCat("decoding-", seed_ % kNames);
    const auto cache = integration::Connect(address_, name).CreateKvCache(integration::CacheRequest("", kCapacityPages));
    if (!cache.ok()) {
      tally_.NoteError("CreateKvCache", cache.status(), Tally::Hurry::kNone);
      return false;
    }
    client_ = std::make_unique<client::Client>(integration::Connect(address_, name, cache->routing_token()));
    cache_ = cache->name();
    sequence_ = NextSequence();
    return Await("CreateSequence", [&] { return client_->CreateSequence(cache_, IdOf(sequence_)).status(); });
  }

  bool WantsMore() const { return !ends_ && tokens_.size() < kMostTokens; }

  // Perhaps a step is under way at the end: it is cancelled with the stream.
  void StepOnAStream() {
    client::AttendStream stream = client_->OpenAttendStream(kPatience);
    while (WantsMore() && Step(stream)) continue;
  }

  // False: the stream is to be left.
  bool Step(client::AttendStream& stream) {
    const std::uint64_t seed = seed_ << 32 | ++num_steps_;
    const Tokens added = RandomTokens(tokens_.size() == 0 ? kPromptTokens : 1, seed);
    const absl::Time begin = absl::Now();
    v1::AttendResponse answer;
    const bool is_written = stream.Write(StepRequest(sequence_, 0, added, seed));
    if (is_written && generator_() % kStepsOfAStream == 0) return false;
    if (!is_written || !stream.Read(&answer)) {
      tally_.NoteError("AttendStream", stream.Finish(), Tally::Hurry::kNone);
      return false;
    }
    tokens_.Append(added);
    const KnownAnswer want(integration::DenseRequest(tokens_, added.size(), seed));
    tally_.NoteAnswer("AttendStream", want.IsRight(answer.output()), absl::Now() - begin);
    return true;
  }

  bool GoOnWithFork() {
    const std::string before = std::exchange(sequence_, NextSequence());
    return Await("ForkSequence", [&] { return client_->ForkSequence(before, IdOf(sequence_)).status(); }) &&
           Await("TruncateSequence", [&] { return client_->TruncateSequence(sequence_, tokens_.size()).status(); }) &&
           Await("DeleteSequence", [&] { return client_->DeleteSequence(before); });
  }

  std::string NextSequence() { return absl::StrCat(cache_, "/sequences/a", ++num_sequences_); }
  static std::string IdOf(const std::string& name) { return name.substr(name.rfind('/') + 1); }

  // Calls again while the work of a stream that broke off still uses the sequence. False after any other error.
  template <typename Call>
  bool Await(const char* kind, Call call) {
    absl::Status status = call();
    for (const absl::Time end = absl::Now() + kPatience; absl::IsFailedPrecondition(status) && absl::Now() < end;) {
      absl::SleepFor(kPause);
      status = call();
    }
    if (!status.ok()) tally_.NoteError(kind, status, Tally::Hurry::kNone);
    return status.ok();
  }

  const std::string& address_;
  const std::uint64_t seed_;
  std::mt19937_64 generator_;
  Tally& tally_;
  const std::atomic<bool>& ends_;
  std::unique_ptr<client::Client> client_;  // with the cache's routing token
  std::string cache_, sequence_;
  Tokens tokens_;  // that the sequence has, as far as the daemon said so
  std::uint64_t num_steps_ = 0;
  int num_sequences_ = 0;
};

}  // namespace

void Decode(const std::string& address, std::uint64_t seed, Tally& tally, const std::atomic<bool>& ends) {
  for (std::uint64_t i = 0; !ends; ++i) {
    Session(address, seed * 10'000 + i, tally, ends).Run();
    absl::SleepFor(kPause);
  }
}

}  // namespace ridgeline::resilience
