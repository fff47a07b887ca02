#include "server/engine/trace/chrome_trace.h"

#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kBegin = absl::FromUnixSeconds(1'700'000'000);

absl::Time At(double microseconds) { return kBegin + absl::Microseconds(microseconds); }

TraceRecords OneCall() {
  const TraceOrigin origin{.request_id = "abc-1", .trace_id = "t", .parent_id = "p"};
  TraceRecords records{.begin = kBegin, .end = At(1000)};
  records.calls.push_back({.origin = origin, .method = "S/M", .code = "OK", .begin = At(10), .end = At(110)});
  records.requests.push_back({.origin = origin, .arrival = At(12), .lease_begin = At(20), .completed = At(100), .launch = 7});
  LaunchRecord launch{.number = 7, .lane = 1, .begin = At(20), .end = At(100), .request_ids = {"abc-1", "abc-2"}};
  launch.spans = {{SpanKind::kCopy, "upload", absl::Microseconds(70), absl::Microseconds(30), 4096},
                  {SpanKind::kKernel, "kernel", absl::Microseconds(40), absl::Microseconds(40)}};
  records.launches.push_back(launch);
  return records;
}

TEST(ChromeTraceJson, ACallHasItsPhasesOneAfterTheOther) {
  const std::string json = ChromeTraceJson(OneCall(), "CPU", 2);
  std::size_t at = 0;
  for (const char* event :
       {R"({"ph":"b","name":"S/M","pid":1,"tid":1,"cat":"call","id":"abc-1","ts":10.000,)", R"({"ph":"b","name":"receive",)",
        R"({"ph":"e","name":"receive","pid":1,"tid":1,"cat":"call","id":"abc-1","ts":12.000})", R"({"ph":"b","name":"queue",)",
        R"({"ph":"e","name":"queue",)", R"({"ph":"b","name":"lane",)", R"({"ph":"e","name":"lane",)",
        R"({"ph":"b","name":"answer",)", R"({"ph":"e","name":"answer",)",
        R"({"ph":"e","name":"S/M","pid":1,"tid":1,"cat":"call","id":"abc-1","ts":110.000})"}) {
    const std::size_t found = json.find(event, at);
    ASSERT_NE(found, std::string::npos) << event << " in order, in\n" << json;
    at = found;
  }
  EXPECT_THAT(json, HasSubstr(R"("args":{"request":"abc-1","trace_id":"t","parent_id":"p","code":"OK"})"));
}

TEST(ChromeTraceJson, SpansOfTheDeviceEndWithTheirLaunch) {
  const std::string json = ChromeTraceJson(OneCall(), "CPU", 2);
  EXPECT_THAT(json, HasSubstr(R"({"ph":"X","name":"launch of 2","pid":2,"tid":2,"cat":"launch","ts":20.000,"dur":80.000,)"
                              R"("args":{"launch":7,"requests":["abc-1","abc-2"]}})"));
  EXPECT_THAT(json, HasSubstr(R"("name":"upload","pid":2,"tid":2,"cat":"copy","ts":30.000,"dur":30.000,)"
                              R"("args":{"launch":7,"requests":["abc-1","abc-2"],"bytes":4096}})"));
  EXPECT_THAT(json, HasSubstr(R"("name":"kernel","pid":2,"tid":2,"cat":"kernel","ts":60.000,"dur":40.000,)"));
}

TEST(ChromeTraceJson, ASpanThatClocksWouldPutOutsideItsLaunchIsCut) {
  TraceRecords records = OneCall();
  records.launches.front().spans = {{SpanKind::kKernel, "kernel", absl::Microseconds(81), absl::Microseconds(81)}};
  EXPECT_THAT(ChromeTraceJson(records, "CPU", 2), HasSubstr(R"("ts":20.000,"dur":80.000,"args":{"launch":7,"requests")"));
}

TEST(ChromeTraceJson, RequestsOfAStreamHaveTracks) {
  TraceRecords records = OneCall();
  records.requests.push_back(records.requests.front());
  const std::string json = ChromeTraceJson(records, "CPU", 2);
  EXPECT_THAT(json, HasSubstr(R"("name":"request","pid":1,"tid":1,"cat":"call","id":"abc-1/1")"));
  EXPECT_THAT(json, HasSubstr(R"("id":"abc-1/2")"));
  EXPECT_THAT(json, Not(HasSubstr("receive")));
}

TEST(ChromeTraceJson, ARequestThatOutlivesItsCallHasATrackOfItsOwn) {
  TraceRecords records = OneCall();
  records.calls.front().end = At(50);
  const std::string json = ChromeTraceJson(records, "CPU", 2);
  EXPECT_THAT(json, HasSubstr(R"("id":"abc-1/1")"));
  EXPECT_THAT(json, Not(HasSubstr("answer")));
}

TEST(ChromeTraceJson, TextIsEscaped) {
  TraceRecords records = OneCall();
  records.launches.front().error = "a \"b\"\n\\ \xff";
  EXPECT_THAT(ChromeTraceJson(records, "CPU \"x\"", 1),
              testing::AllOf(HasSubstr(R"("error":"a \"b\"\u000a\\ \u00ff")"), HasSubstr(R"("name":"CPU \"x\"")")));
}

TEST(ChromeTraceJson, NothingIsADocumentToo) {
  EXPECT_THAT(ChromeTraceJson({.begin = kBegin, .end = kBegin}, "CPU", 1), HasSubstr("\"traceEvents\":[\n"));
}

}  // namespace
}  // namespace ridgeline::engine
