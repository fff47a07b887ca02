#include "server/engine/admission.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kRetryDelay = absl::Milliseconds(70);

WorkTraits Of(const std::string& client, std::int64_t bytes = 1) { return {.client = client, .device_bytes = bytes}; }

absl::Status Admit(Admission& admission, const WorkTraits& work) {
  return admission.Admit(work, /*must_wait=*/true, /*num_waiting=*/0, kRetryDelay);
}

void ExpectOverQuota(const absl::Status& status, const char* quota) {
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the client has its share of the queue")));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonQuotaExceeded);
  EXPECT_THAT(base::ErrorDetails(status), UnorderedElementsAre(Pair("quota", quota)));
  EXPECT_EQ(base::RetryDelay(status), kRetryDelay);
}

TEST(AdmissionTest, WithoutQuotasAClientMayHaveAllThereIs) {
  Admission admission({.max_queued_bytes = 100});
  for (int i = 0; i < 100; ++i) ASSERT_THAT(Admit(admission, Of("alice")), IsOk());
  const absl::Status full = Admit(admission, Of("alice"));
  EXPECT_EQ(base::ErrorReason(full), base::kReasonQueueFull);
  EXPECT_EQ(base::RetryDelay(full), kRetryDelay);
  EXPECT_EQ(admission.admitted_bytes(), 100);
}

TEST(AdmissionTest, WhoNeedNotWaitComesInWhateverWaits) {
  Admission admission({.max_queued_requests = 2});
  EXPECT_EQ(base::ErrorReason(admission.Admit(Of("a"), /*must_wait=*/true, 2, kRetryDelay)), base::kReasonQueueFull);
  EXPECT_THAT(admission.Admit(Of("a"), /*must_wait=*/true, 1, kRetryDelay), IsOk());
  EXPECT_THAT(admission.Admit(Of("a"), /*must_wait=*/false, 2, kRetryDelay), IsOk());
}

TEST(AdmissionTest, AClientsRequestsAreBoundedAndNobodyElses) {
  Admission admission({.max_requests_per_client = 2});
  ASSERT_THAT(Admit(admission, Of("alice")), IsOk());
  ASSERT_THAT(Admit(admission, Of("alice")), IsOk());
  ExpectOverQuota(Admit(admission, Of("alice")), "requests");
  EXPECT_THAT(Admit(admission, Of("bob")), IsOk());
  EXPECT_THAT(Admit(admission, Of("")), IsOk()) << "who gives no name is a client too";
  admission.Discharge(Of("bob"));
  ExpectOverQuota(Admit(admission, Of("alice")), "requests");
  admission.Discharge(Of("alice"));
  EXPECT_THAT(Admit(admission, Of("alice")), IsOk());
  EXPECT_EQ(admission.refusals().requests, 2);
  EXPECT_EQ(admission.refusals().bytes, 0);
}

TEST(AdmissionTest, AClientsBytesAreBoundedAndNobodyElses) {
  Admission admission({.max_bytes_per_client = 10});
  ASSERT_THAT(Admit(admission, Of("alice", 6)), IsOk());
  const absl::Status refused = Admit(admission, Of("alice", 5));
  ExpectOverQuota(refused, "bytes");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("needs 5 bytes beside the 6 bytes")));
  EXPECT_THAT(Admit(admission, Of("alice", 4)), IsOk());
  EXPECT_THAT(Admit(admission, Of("bob", 10)), IsOk());
  EXPECT_EQ(admission.admitted_bytes(), 20);
  admission.Discharge(Of("alice", 6));
  EXPECT_THAT(Admit(admission, Of("alice", 6)), IsOk());
  EXPECT_EQ(admission.refusals().bytes, 1);
}

TEST(AdmissionTest, WhatIsLargerThanTheQuotaComesInAlone) {
  Admission admission({.max_bytes_per_client = 10});
  ASSERT_THAT(Admit(admission, Of("alice", std::numeric_limits<std::int64_t>::max())), IsOk());
  ExpectOverQuota(Admit(admission, Of("alice", std::numeric_limits<std::int64_t>::max())), "bytes");
  admission.Discharge(Of("alice", std::numeric_limits<std::int64_t>::max()));
  ASSERT_THAT(Admit(admission, Of("alice", 10)), IsOk());
  ExpectOverQuota(Admit(admission, Of("alice", 1)), "bytes");
}

TEST(AdmissionTest, ARefusalCountsForNothing) {
  Admission admission({.max_queued_bytes = 10, .max_requests_per_client = 2, .max_bytes_per_client = 8});
  ASSERT_THAT(Admit(admission, Of("alice", 8)), IsOk());
  EXPECT_EQ(base::ErrorReason(Admit(admission, Of("bob", 3))), base::kReasonQueueFull);
  EXPECT_THAT(Admit(admission, Of("bob", 1)), IsOk());
  EXPECT_THAT(Admit(admission, Of("bob", 1)), IsOk()) << "the one refused is none of his two";
  EXPECT_EQ(admission.admitted_bytes(), 10);
}

}  // namespace
}  // namespace ridgeline::engine
