#include "tests/integration/session_fleet.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/error.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::ErrorReason;
using support::IsOk;

constexpr std::size_t kThreads = 4;
constexpr std::int64_t kCapacityPages = 16;
constexpr std::int64_t kPromptTokens = 6;
constexpr std::int64_t kMostTokens = 40;
constexpr absl::Duration kPatience = absl::Minutes(2);

// Two kernels may add in another order.
bool AreNear(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= 1e-5F)) return false;
  }
  return true;
}

}  // namespace

Session::Session(const std::string& proxy, int number, SessionCounts& counts)
    : proxy_(proxy),
      number_(number),
      counts_(counts),
      stateless_(Connect(proxy, absl::StrCat("session-", number))),
      tokens_(RandomTokens(kPromptTokens, static_cast<std::uint64_t>(number))) {}

absl::Status Session::Begin() {
  absl::MutexLock lock(&mutex_);
  return BeginWithTokens();
}

absl::Status Session::Step() {
  absl::MutexLock lock(&mutex_);
  if (has_left_) return absl::OkStatus();
  if (tokens_.size() == kMostTokens) {
    const absl::Status truncated = client_->TruncateSequence(sequence_, kPromptTokens).status();
    if (!truncated.ok()) return Recover(truncated);
    tokens_ = tokens_.First(kPromptTokens);
  }
  const std::uint64_t seed = static_cast<std::uint64_t>(number_) << 32 | static_cast<std::uint64_t>(num_steps_ + 1);
  const Tokens token = RandomTokens(1, seed);
  const auto answer = client_->Attend(StepRequest(sequence_, 0, token, seed));
  if (!answer.ok()) return Recover(answer.status());
  tokens_.Append(token);
  Check(*answer, seed);
  ++num_steps_;
  ++counts_.steps;
  return absl::OkStatus();
}

absl::Status Session::Move() {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::SequencePart> parts;
  const absl::Status exported = client_->ExportSequence(sequence_, [&](v1::SequencePart part) {
    parts.push_back(std::move(part));
    return absl::OkStatus();
  });
  if (!exported.ok()) return exported;
  const std::unique_ptr<client::Client> old_client = std::move(client_);
  const std::string old_cache = cache_;
  if (absl::Status made = MakeCache(); !made.ok()) return made;
  std::size_t next = 0;
  const auto sequence = client_->ImportSequence(cache_, "a", [&]() -> absl::StatusOr<std::optional<v1::SequencePart>> {
    if (next == parts.size()) return std::nullopt;
    return parts[next++];
  });
  if (!sequence.ok()) return sequence.status();
  return old_client->DeleteKvCache(old_cache);
}

absl::Status Session::Leave(absl::Duration lease) {
  absl::MutexLock lock(&mutex_);
  has_left_ = true;
  v1::RenewKvCacheLeaseRequest request;
  request.set_name(cache_);
  request.mutable_lease_duration()->set_seconds(absl::ToInt64Seconds(lease));
  return client_->RenewKvCacheLease(request).status();
}

std::string Session::instance() const {
  absl::MutexLock lock(&mutex_);
  return instance_;
}

std::vector<std::string> Session::lost_instances() const {
  absl::MutexLock lock(&mutex_);
  return lost_instances_;
}

absl::Status Session::BeginWithTokens() {
  if (absl::Status made = MakeCache(); !made.ok()) return made;
  if (const auto sequence = client_->CreateSequence(cache_, "a"); !sequence.ok()) return sequence.status();
  return client_->AppendKeyValue(AppendRequest(sequence_, 0, tokens_)).status();
}

absl::Status Session::MakeCache() {
  const auto cache = stateless_.CreateKvCache(CacheRequest(absl::StrCat("s", number_, "-", ++num_caches_), kCapacityPages));
  if (!cache.ok()) return cache.status();
  cache_ = cache->name();
  sequence_ = absl::StrCat(cache_, "/sequences/a");
  instance_ = cache->instance_id();
  client_ = std::make_unique<client::Client>(Connect(proxy_, absl::StrCat("session-", number_), cache->routing_token()));
  return absl::OkStatus();
}

absl::Status Session::Recover(const absl::Status& error) {
  absl::Status status = error;
  const absl::Time end = absl::Now() + kPatience;
  bool is_lost = false;
  while (absl::Now() < end) {
    if (ErrorReason(status) == "KV_CACHE_LOST" && !is_lost) {
      is_lost = true;
      lost_instances_.push_back(instance_);
    } else if (absl::IsUnavailable(status)) {
      ++counts_.interrupted;
      absl::SleepFor(absl::Milliseconds(20));
    } else {
      return status;
    }
    status = is_lost ? BeginWithTokens() : Resume();
  }
  return status;
}

absl::Status Session::Resume() {
  const std::string fork = absl::StrCat("a", ++num_forks_);
  const auto forked = client_->ForkSequence(sequence_, fork);
  if (!forked.ok()) return forked.status();
  sequence_ = absl::StrCat(cache_, "/sequences/", fork);
  return client_->TruncateSequence(sequence_, tokens_.size()).status();
}

void Session::Check(const v1::AttendResponse& answer, std::uint64_t query_seed) {
  // Any node may say what is right.
  auto right = stateless_.Attend(DenseRequest(tokens_, 1, query_seed));
  for (const absl::Time end = absl::Now() + kPatience; absl::IsUnavailable(right.status()) && absl::Now() < end;) {
    right = stateless_.Attend(DenseRequest(tokens_, 1, query_seed));
  }
  EXPECT_THAT(right, IsOk());
  if (!right.ok() || !AreNear(Elements(answer.output()), Elements(right->output()))) ++counts_.wrong;
}

SessionFleet::SessionFleet(std::string proxy) : proxy_(std::move(proxy)) {
  for (std::size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

SessionFleet::~SessionFleet() {
  ends_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void SessionFleet::Begin(int num_sessions) {
  for (int i = 0; i < num_sessions; ++i) {
    auto session = std::make_shared<Session>(proxy_, static_cast<int>(sessions().size()), counts_);
    ASSERT_THAT(session->Begin(), IsOk());
    absl::MutexLock lock(&mutex_);
    sessions_.push_back(std::move(session));
  }
}

void SessionFleet::AwaitSteps(int num_steps) const {
  const absl::Time end = absl::Now() + kPatience;
  const std::vector<std::shared_ptr<Session>> sessions = this->sessions();
  std::vector<int> aims;
  for (const auto& session : sessions) aims.push_back(session->num_steps() + num_steps);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    while (sessions[i]->num_steps() < aims[i] && !sessions[i]->has_left()) {
      ASSERT_LT(absl::Now(), end) << "a session makes no steps";
      absl::SleepFor(absl::Milliseconds(2));
    }
  }
}

std::vector<std::shared_ptr<Session>> SessionFleet::sessions() const {
  absl::MutexLock lock(&mutex_);
  return sessions_;
}

std::vector<std::shared_ptr<Session>> SessionFleet::SessionsOn(const std::string& instance) const {
  std::vector<std::shared_ptr<Session>> found;
  for (const auto& session : sessions()) {
    if (!session->has_left() && session->instance() == instance) found.push_back(session);
  }
  return found;
}

void SessionFleet::Run(std::size_t thread_idx) {
  while (!ends_) {
    const std::vector<std::shared_ptr<Session>> sessions = this->sessions();
    if (sessions.size() <= thread_idx) absl::SleepFor(absl::Milliseconds(1));
    for (std::size_t i = thread_idx; i < sessions.size() && !ends_; i += kThreads) EXPECT_THAT(sessions[i]->Step(), IsOk());
  }
}

}  // namespace ridgeline::integration
