// Who may come in: bounds on the requests that wait and on the device bytes of all that were admitted, and each client's share.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/load.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

struct AdmissionLimits {
  int max_queued_requests = 1024;  // waiting, beyond those on lanes; >= 0
  // Device memory (inputs, outputs, workspace) that admitted requests, waiting and running, may need together. A request that
  // needs more than all of it is admitted while there is no other.
  std::int64_t max_queued_bytes = std::int64_t{4} << 30;
  // The same of one client, its running requests too; 0: as much as there is room for.
  std::int64_t max_requests_per_client = 0;
  std::int64_t max_bytes_per_client = 0;
};

// Not thread-safe: its owner's mutex guards it.
class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // Counts the work as admitted, until Discharge. Errors: RESOURCE_EXHAUSTED (QUEUE_FULL; QUOTA_EXCEEDED: its client has its
  // share), with `retry_delay`.
  absl::Status Admit(const WorkTraits& work, bool must_wait, int num_waiting, absl::Duration retry_delay);

  // Admitted work has ended, wherever it was.
  void Discharge(const WorkTraits& work);

  bool IsFull(int num_waiting) const { return num_waiting >= limits_.max_queued_requests; }
  std::int64_t admitted_bytes() const { return admitted_bytes_; }
  const QuotaRefusals& refusals() const { return refusals_; }

 private:
  // What one client has admitted.
  struct Share {
    std::int64_t requests = 0;
    std::int64_t bytes = 0;
  };

  absl::Status CheckRoom(const WorkTraits& work, bool must_wait, int num_waiting) const;
  // Also counts the refusal.
  absl::Status CheckQuotas(const WorkTraits& work);

  const AdmissionLimits limits_;
  std::int64_t admitted_bytes_ = 0;
  absl::flat_hash_map<std::string, Share> shares_;  // by client, of those that have something admitted
  QuotaRefusals refusals_;
};

}  // namespace ridgeline::engine
