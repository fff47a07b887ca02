#include "client/cli/load_document.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/units.h"
#include "client/cpp/error.h"

namespace ridgeline::cli {
namespace {

// In thousandths, with their columns.
const std::vector<int>& Quantiles() {
  static const auto* const kQuantiles = new std::vector<int>{500, 900, 950, 990, 999};
  return *kQuantiles;
}
constexpr std::int64_t kCountForLastQuantile = 1000;  // of fewer samples, p99.9 is the largest

std::string CodeName(int code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

Section RequestsSection(const LoadCounts& all, const LoadOutcome& outcome, bool open_loop) {
  Section section = {"Requests",
                     {{"warm_up_requests", "warm-up", outcome.num_warm_up},
                      {"sent", "sent", all.num_sent},
                      {"answered", "answered", all.num_answered},
                      {"failed", "failed", all.num_failed()}}};
  section.fields.back().value.tone = all.num_failed() == 0 ? Tone::kPlain : Tone::kBad;
  // People see the codes that occurred, programs all.
  for (int code = 1; code < kNumStatusCodes; ++code) {
    const std::int64_t count = all.failures_by_code[code];
    const std::string name = CodeName(code);
    section.fields.push_back(
        {absl::StrCat("failed_", absl::AsciiStrToLower(name)), count == 0 ? "" : absl::StrCat("  ", name), count});
  }
  const double late_share = all.num_sent == 0 ? 0 : static_cast<double>(all.num_late) / static_cast<double>(all.num_sent);
  section.fields.push_back({"unsent", open_loop ? "never sent" : "", outcome.num_unsent});
  section.fields.push_back({"late_fraction",
                            open_loop ? absl::StrCat("sent over ", FormatSeconds(kLateSeconds), " late") : "",
                            {late_share, Unit::kFraction}});
  return section;
}

// Sessions over KV caches; other loads show none.
Section SessionsSection(const SessionCounts& sessions) {
  const bool shown = sessions.num_begun > 0;
  const auto label = [&](bool condition, const char* text) { return std::string(condition ? text : ""); };
  return {shown ? "Sessions" : "",
          {{"sessions_begun", label(shown, "begun"), sessions.num_begun},
           {"sessions_completed", label(shown, "completed"), sessions.num_completed},
           {"sessions_cancelled", label(sessions.num_cancelled > 0, "cancelled"), sessions.num_cancelled}}};
}

Section RatesSection(const LoadCounts& all, double elapsed_seconds) {
  const auto rate = [&](std::int64_t count) {
    if (elapsed_seconds <= 0) return Value();
    return Value(static_cast<double>(count) / elapsed_seconds, Unit::kPerSecond);
  };
  // As a request sees it: large batches count as often as they have requests.
  const Value mean_batch =
      all.num_answered == 0 ? Value() : Value(static_cast<double>(all.batch_requests) / static_cast<double>(all.num_answered));
  // Above 100 % where kernels of several lanes overlap.
  const Value kernel_share = elapsed_seconds <= 0 ? Value() : Value(all.device_seconds / elapsed_seconds, Unit::kFraction);
  return {"Answered",
          {{"elapsed_seconds", "in", {elapsed_seconds, Unit::kSeconds}},
           {"requests_per_second", "requests", rate(all.num_answered)},
           {"query_tokens_per_second", "query tokens", rate(all.query_tokens)},
           {"key_tokens_per_second", "key tokens", rate(all.key_tokens)},
           {"batch_requests_mean", "requests a launch", mean_batch},
           {"kernel_time_fraction", "kernel time", kernel_share}}};
}

std::vector<Column> Columns() {
  return {{"work", "work", /*groups=*/true},
          {"time", "time"},
          {"count", "requests"},
          {"mean_seconds", "mean"},
          {"p50_seconds", "p50"},
          {"p90_seconds", "p90"},
          {"p95_seconds", "p95"},
          {"p99_seconds", "p99"},
          {"p99_9_seconds", "p99.9"},
          {"max_seconds", "max"}};
}

std::vector<Value> RowOf(const std::string& work, const std::string& time, Samples& samples) {
  std::vector<Value> row = {work, time, samples.count()};
  if (samples.count() == 0) {
    row.resize(Columns().size());
    return row;
  }
  const Samples::Summary summary = samples.Summarize(Quantiles());
  row.emplace_back(summary.mean, Unit::kSeconds);
  for (const double quantile : summary.quantiles) row.emplace_back(quantile, Unit::kSeconds);
  row.emplace_back(summary.max, Unit::kSeconds);
  return row;
}

void AppendRows(const std::string& work, LoadCounts& counts, bool open_loop, Rows& rows) {
  rows.values.push_back(RowOf(work, "latency", counts.latency));
  if (open_loop) rows.values.push_back(RowOf(work, "send delay", counts.send_delay));
  rows.values.push_back(RowOf(work, "server queue", counts.queue));
  rows.values.push_back(RowOf(work, "server inputs", counts.inputs));
  rows.values.push_back(RowOf(work, "server kernel", counts.kernel));
}

}  // namespace

void AppendOutcome(Document& document, LoadOutcome outcome, bool open_loop) {
  LoadCounts all = outcome.prefill;
  all.Add(outcome.decode);
  document.sections.push_back(RequestsSection(all, outcome, open_loop));
  document.sections.push_back(SessionsSection(outcome.sessions));
  document.sections.push_back(RatesSection(all, outcome.elapsed_seconds));
  document.rows = Rows{"times", Columns(), {}};
  AppendRows("all", all, open_loop, *document.rows);
  if (outcome.prefill.num_sent > 0 && outcome.decode.num_sent > 0) {
    AppendRows("prefill", outcome.prefill, open_loop, *document.rows);
    AppendRows("decode", outcome.decode, open_loop, *document.rows);
  }
  if (outcome.sessions.first_token.count() > 0) {
    document.rows->values.push_back(RowOf("session", "first token", outcome.sessions.first_token));
  }
  if (all.num_answered > 0 && all.num_answered < kCountForLastQuantile) {
    document.notes.push_back(absl::StrCat("p99.9 of fewer than ", FormatCount(kCountForLastQuantile),
                                          " requests is the slowest of them; a longer --duration tells more."));
  }
}

std::string ComplaintAbout(const LoadOutcome& outcome, bool allow_refused) {
  LoadCounts all = outcome.prefill;
  all.Add(outcome.decode);
  std::int64_t num_failed = 0;
  std::vector<std::string> codes;
  for (int code = 1; code < kNumStatusCodes; ++code) {
    const bool allowed = allow_refused && static_cast<absl::StatusCode>(code) == absl::StatusCode::kResourceExhausted;
    const std::int64_t count = all.failures_by_code[code];
    if (allowed || count == 0) continue;
    num_failed += count;
    codes.push_back(absl::StrCat(FormatCount(count), " ", CodeName(code)));
  }
  if (num_failed > 0) {
    return absl::StrCat(FormatCount(num_failed), " of ", FormatCount(all.num_sent),
                        " requests failed: ", absl::StrJoin(codes, ", "),
                        "; the first: ", client::ErrorString(outcome.first_failure));
  }
  if (outcome.num_unsent > 0) {
    return absl::StrCat(FormatCount(outcome.num_unsent),
                        " requests were never sent: the server is slower than --rate, or --max_in_flight is too small");
  }
  if (all.num_answered == 0) return "no request was answered";
  return "";
}

}  // namespace ridgeline::cli
