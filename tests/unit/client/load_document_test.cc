#include "client/cli/load_document.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kRefused = static_cast<std::size_t>(absl::StatusCode::kResourceExhausted);
constexpr auto kInternal = static_cast<std::size_t>(absl::StatusCode::kInternal);

LoadCounts Answered(int count, double latency_seconds) {
  LoadCounts counts;
  counts.num_sent = counts.num_answered = count;
  counts.query_tokens = count * 100;
  counts.key_tokens = count * 200;
  counts.batch_requests = count * 2;
  counts.device_seconds = count * 0.5e-3;
  for (int i = 0; i < count; ++i) {
    counts.latency.Add(latency_seconds);
    counts.send_delay.Add(0);
    counts.queue.Add(1e-6);
    counts.inputs.Add(2e-6);
    counts.kernel.Add(1e-3);
  }
  return counts;
}

LoadOutcome Outcome() {
  LoadOutcome outcome;
  outcome.prefill = Answered(4, 2e-3);
  outcome.elapsed_seconds = 2;
  return outcome;
}

Document DocumentOf(const LoadOutcome& outcome, bool open_loop) {
  Document document;
  AppendOutcome(document, outcome, open_loop);
  return document;
}

TEST(LoadDocumentTest, TablesShowWhatOccurred) {
  LoadOutcome outcome = Outcome();
  EXPECT_EQ(RenderTable(DocumentOf(outcome, /*open_loop=*/false), /*colour=*/false), R"(Requests
  warm-up            0
  sent               4
  answered           4
  failed             0

Answered
  in                 2.00 s
  requests           2.00 /s
  query tokens       200 /s
  key tokens         400 /s
  requests a launch  2.00
  kernel time        0.1 %

  work  time           requests     mean      p50      p90      p95      p99    p99.9      max
  ────  ─────────────  ────────  ───────  ───────  ───────  ───────  ───────  ───────  ───────
  all   latency               4  2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms
        server queue          4  1.00 µs  1.00 µs  1.00 µs  1.00 µs  1.00 µs  1.00 µs  1.00 µs
        server inputs         4  2.00 µs  2.00 µs  2.00 µs  2.00 µs  2.00 µs  2.00 µs  2.00 µs
        server kernel         4  1.00 ms  1.00 ms  1.00 ms  1.00 ms  1.00 ms  1.00 ms  1.00 ms

p99.9 of fewer than 1,000 requests is the slowest of them; a longer --duration tells more.
)");
  outcome.decode = Answered(1, 1e-3);
  outcome.decode.num_sent = 4;
  outcome.decode.num_late = 2;
  outcome.decode.failures_by_code[kRefused] = 3;
  outcome.num_unsent = 5;
  EXPECT_THAT(RenderTable(DocumentOf(outcome, /*open_loop=*/true), /*colour=*/false),
              AllOf(HasSubstr("  failed                  3\n    RESOURCE_EXHAUSTED    3\n  never sent              5\n"
                              "  sent over 1.00 ms late  25.0 %\n"),
                    HasSubstr("send delay"), HasSubstr("\n  prefill  latency "), HasSubstr("\n  decode   latency ")));
}

TEST(LoadDocumentTest, SessionsAreShownWhereThereAreAny) {
  LoadOutcome outcome = Outcome();
  outcome.sessions.num_begun = 3;
  outcome.sessions.num_completed = 2;
  outcome.sessions.first_token.Add(0.25);
  EXPECT_THAT(RenderTable(DocumentOf(outcome, /*open_loop=*/true), /*colour=*/false),
              AllOf(ContainsRegex("Sessions\n  begun +3\n  completed +2\n"), Not(HasSubstr("cancelled")),
                    ContainsRegex("session  first token +1 +250 ms")));
  outcome.sessions.num_cancelled = 1;
  EXPECT_THAT(RenderTable(DocumentOf(outcome, /*open_loop=*/true), /*colour=*/false), ContainsRegex("\n  cancelled +1\n"));
}

TEST(LoadDocumentTest, ProgramsGetTheSameFieldsFromEveryLoad) {
  const std::string header =
      "warm_up_requests,sent,answered,failed,failed_cancelled,failed_unknown,failed_invalid_argument,failed_deadline_exceeded,"
      "failed_not_found,failed_already_exists,failed_permission_denied,failed_resource_exhausted,failed_failed_precondition,"
      "failed_aborted,failed_out_of_range,failed_unimplemented,failed_internal,failed_unavailable,failed_data_loss,"
      "failed_unauthenticated,unsent,late_fraction,sessions_begun,sessions_completed,sessions_cancelled,elapsed_seconds,"
      "requests_per_second,query_tokens_per_second,key_tokens_per_second,batch_requests_mean,kernel_time_fraction,work,time,"
      "count,mean_seconds,p50_seconds,p90_seconds,p95_seconds,p99_seconds,p99_9_seconds,"
      "max_seconds\n";
  for (const LoadOutcome& outcome : {Outcome(), LoadOutcome()}) {
    for (const bool open_loop : {false, true}) EXPECT_THAT(RenderCsv(DocumentOf(outcome, open_loop)), StartsWith(header));
  }
  const std::string json = RenderJson(DocumentOf(LoadOutcome(), /*open_loop=*/false));
  EXPECT_THAT(json, AllOf(HasSubstr("\"requests_per_second\": null"), HasSubstr("\"times\": [\n"),
                          HasSubstr("{\"work\": \"all\", \"time\": \"latency\", \"count\": 0, \"mean_seconds\": null,")));
}

TEST(ComplaintTest, OnlyAnswersToAllAreASuccess) {
  LoadOutcome outcome = Outcome();
  EXPECT_THAT(ComplaintAbout(outcome, false), IsEmpty());
  EXPECT_EQ(ComplaintAbout(LoadOutcome(), true), "no request was answered");

  outcome.prefill.num_sent += 2;
  outcome.prefill.failures_by_code[kRefused] = 2;
  outcome.first_failure = absl::ResourceExhaustedError("the queue is full");
  EXPECT_EQ(ComplaintAbout(outcome, false),
            "2 of 6 requests failed: 2 RESOURCE_EXHAUSTED; the first: RESOURCE_EXHAUSTED: the queue is full");
  EXPECT_THAT(ComplaintAbout(outcome, true), IsEmpty());

  outcome.num_unsent = 7;
  EXPECT_THAT(ComplaintAbout(outcome, true), StartsWith("7 requests were never sent: "));
  outcome.decode.num_sent = 1;
  outcome.decode.failures_by_code[kInternal] = 1;
  EXPECT_THAT(ComplaintAbout(outcome, true), AllOf(StartsWith("1 of 7 requests failed: 1 INTERNAL;"), Not(HasSubstr("2 RES"))));
}

}  // namespace
}  // namespace ridgeline::cli
