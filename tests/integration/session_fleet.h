// Clients of KV caches behind a proxy: each session decodes a token at a time, checks every answer, and does what a client has
// to do when its node has gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "tests/integration/kv_cache_fixture.h"

namespace ridgeline::integration {

struct SessionCounts {
  std::atomic<int> steps{0};        // answered
  std::atomic<int> wrong{0};        // of those, not what the same tokens give when they are sent with the request
  std::atomic<int> interrupted{0};  // calls that got UNAVAILABLE: the caller can't know if they were carried out
};

// One cache with one sequence. Thread-safe.
class Session {
 public:
  Session(const std::string& proxy, int number, SessionCounts& counts);

  // On the node that the proxy picks: makes a cache and prefills.
  absl::Status Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  // Appends a token and attends. After KV_CACHE_LOST the session begins again, elsewhere, with all tokens so far.
  absl::Status Step() ABSL_LOCKS_EXCLUDED(mutex_);
  // To another node, by an export that is imported there.
  absl::Status Move() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes no more steps; what it holds is given back when the lease has run out.
  absl::Status Leave(absl::Duration lease) ABSL_LOCKS_EXCLUDED(mutex_);

  // The daemon's that has the cache, as the daemon says.
  std::string instance() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that it was told to have lost its cache with.
  std::vector<std::string> lost_instances() const ABSL_LOCKS_EXCLUDED(mutex_);
  int num_steps() const { return num_steps_.load(); }
  bool has_left() const { return has_left_.load(); }

 private:
  absl::Status BeginWithTokens() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeCache() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a call of which nobody knows if it was carried out, or will be: the session goes on with a fork of its sequence,
  // which that call does not name, cut to the tokens that the session knows of.
  absl::Status Resume() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // If the error says that the node has gone or was not reached, the session goes on, elsewhere or here. Other errors come
  // back.
  absl::Status Recover(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Check(const v1::AttendResponse& answer, std::uint64_t query_seed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string proxy_;
  const int number_;
  SessionCounts& counts_;
  const client::Client stateless_;  // for calls that any node may answer
  std::atomic<int> num_steps_{0};
  std::atomic<bool> has_left_{false};
  mutable absl::Mutex mutex_;
  std::unique_ptr<client::Client> client_ ABSL_GUARDED_BY(mutex_);  // with the routing token
  std::string cache_ ABSL_GUARDED_BY(mutex_);                       // kvCaches/...
  std::string sequence_ ABSL_GUARDED_BY(mutex_);
  std::string instance_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> lost_instances_ ABSL_GUARDED_BY(mutex_);
  Tokens tokens_ ABSL_GUARDED_BY(mutex_);  // that the sequence's layer 0 holds
  int num_caches_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_forks_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Many sessions, which step on a few threads for as long as the fleet lives; an unexpected error fails the test.
class SessionFleet {
 public:
  explicit SessionFleet(std::string proxy);
  ~SessionFleet();

  void Begin(int num_sessions) ABSL_LOCKS_EXCLUDED(mutex_);
  // Until each session has made so many more steps.
  void AwaitSteps(int num_steps) const ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<std::shared_ptr<Session>> sessions() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<Session>> SessionsOn(const std::string& instance) const;
  const SessionCounts& counts() const { return counts_; }

 private:
  void Run(std::size_t thread_idx) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string proxy_;
  SessionCounts counts_;
  std::atomic<bool> ends_{false};
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline::integration
