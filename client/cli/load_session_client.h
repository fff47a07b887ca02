// One client of a load over KV caches: its sessions one after the other, and its stream.
//
//   Fill ─► Begin ─► SendStep ─► SendLayer ─► OnAnswer ─► … next layer, next step … ─► EndRound ─► SendStep or Begin
//                       │                        OnEnd ─► AfterEnd: give the session up, pause ─► Begin
//                       └─► the run is over ─► Retire ─► OnEnd ─► AfterEnd: the client has ended
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/cli/load_session_run.h"
#include "client/cpp/async_attend_stream.h"
#include "client/cpp/client.h"

namespace ridgeline::cli {

// What blocks runs on the run's threads, one piece at a time for a client. What a stream's event calls doesn't block; an answer
// comes only while the client waits for one and does nothing else, so its events need no lock.
class SessionClient final : public client::AttendStreamEvents {
 public:
  SessionClient(SessionRun& run, const client::Client& channel, const std::string& cache, int client_idx);

  // Makes the first session of a closed loop, on the run's threads.
  void PostFill() {
    Post([this] { Fill(); });
  }
  // Runs the client, likewise, until the run is over.
  void PostBegin() {
    Post([this] { Begin(); });
  }

 private:
  void OnAnswer(const v1::AttendResponse& response) override;
  void OnEnd(const absl::Status& status) override;

  // Runs `work` on the run's threads, once nothing else runs there for this client.
  void Post(std::function<void()> work) { PostAt(TimedThreads::Clock::now(), std::move(work)); }
  void PostAt(TimedThreads::Clock::time_point time, std::function<void()> work);

  // These block.
  void Fill();
  void Begin();
  absl::Status MakeSession();
  absl::Status FillSession();
  absl::Status DropSession();
  void EndRound();
  void AfterEnd(const absl::Status& status);
  void Retire();
  void GiveUp(const absl::Status& failure);

  void OpenStream();
  void SendStep();
  void SendLayer();
  void FinishStep(double now_seconds);

  bool IsPrefilling() const { return prefilled_tokens_ < plan_->prefill_tokens; }
  bool IsMeasured() const { return intended_seconds_ >= 0; }
  LoadCounts& counts() { return IsPrefilling() ? outcome_.prefill : outcome_.decode; }

  SessionRun& run_;
  const client::Client& channel_;
  const std::string cache_;
  const int client_idx_;
  std::mt19937_64 random_;
  LoadOutcome outcome_;
  absl::Mutex posted_work_;                            // held by what the run's threads do for this client
  std::shared_ptr<client::AsyncAttendStream> stream_;  // null: none is open
  bool retiring_ = false;

  // The session.
  std::optional<SessionPlan> plan_;
  std::string sequence_;                              // empty: not made yet
  std::vector<client::EncodedRequest> decode_steps_;  // [layer]
  std::int64_t prefilled_tokens_ = 0;
  std::int64_t decoded_tokens_ = 0;
  std::int64_t round_tokens_ = 0;  // to decode until the round's end
  bool is_first_step_ = true;
  bool is_cancelling_ = false;

  // The step: a chunk or a token, layer after layer.
  bool is_waiting_ = false;  // for an answer; what posted work sends, it sends last
  double intended_seconds_ = 0;
  std::int64_t step_tokens_ = 0;
  int layer_ = 0;
  double last_step_seconds_ = 0;  // how long the last one took
};

}  // namespace ridgeline::cli
