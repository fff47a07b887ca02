// What the daemon has to answer to an Attend request, in double precision, worked out beforehand: under load nobody has time
// for it.
#pragma once

#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/tensor.pb.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_tolerance.h"

namespace ridgeline::resilience {

// Thread-safe.
class KnownAnswer {
 public:
  // To a request of one dense sequence in float32, inline or random, with no options but causal.
  explicit KnownAnswer(const v1::AttendRequest& request);

  // The output is inline, and each element within its bound of the reference.
  bool IsRight(const v1::Tensor& output) const;

 private:
  reference::AttentionResult want_;
  support::AttentionBound bound_;
};

}  // namespace ridgeline::resilience
