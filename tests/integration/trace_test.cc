// CaptureTrace: that the document parses, that its spans nest, and that they cover what the calls took.
#include <signal.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/integration/random_attend.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";
// Times in the document have three digits after the microsecond.
constexpr double kRoundingUs = 0.002;

Client Connect(const Daemon& daemon) {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = 1;
  options.name = "trace-test";
  options.traceparent = absl::StrCat("00-", kTraceId, "-00f067aa0ba902b7-01");
  return *Client::Create(daemon.unix_address(), options);
}

v1::CaptureTraceRequest For(absl::Duration duration) {
  v1::CaptureTraceRequest request;
  request.mutable_duration()->set_seconds(absl::ToInt64Seconds(duration));
  request.mutable_duration()->set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(duration) % 1'000'000'000));
  return request;
}

struct Event {
  std::string phase, name, category, id;
  int pid = 0, tid = 0;
  double begin = 0, duration = 0;  // microseconds
  std::set<std::string> requests = {};
  std::string trace_id = {}, code = {};
};

Event ReadEvent(const google::protobuf::Struct& object) {
  const auto text = [](const google::protobuf::Struct& of, const char* key) {
    const auto found = of.fields().find(key);
    return found == of.fields().end() ? std::string() : found->second.string_value();
  };
  const auto number = [&](const char* key) {
    const auto found = object.fields().find(key);
    return found == object.fields().end() ? 0.0 : found->second.number_value();
  };
  Event event{.phase = text(object, "ph"),
              .name = text(object, "name"),
              .category = text(object, "cat"),
              .id = text(object, "id"),
              .pid = static_cast<int>(number("pid")),
              .tid = static_cast<int>(number("tid")),
              .begin = number("ts"),
              .duration = number("dur")};
  const auto arguments = object.fields().find("args");
  if (arguments == object.fields().end()) return event;
  const google::protobuf::Struct& args = arguments->second.struct_value();
  event.trace_id = text(args, "trace_id");
  event.code = text(args, "code");
  if (const std::string request = text(args, "request"); !request.empty()) event.requests.insert(request);
  if (const auto list = args.fields().find("requests"); list != args.fields().end()) {
    for (const auto& value : list->second.list_value().values()) event.requests.insert(value.string_value());
  }
  return event;
}

std::vector<Event> Parse(const std::string& json) {
  google::protobuf::Struct document;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &document);
  EXPECT_TRUE(status.ok()) << status.ToString() << json.substr(0, 1000);
  std::vector<Event> events;
  for (const auto& value : document.fields().at("traceEvents").list_value().values()) {
    events.push_back(ReadEvent(value.struct_value()));
  }
  return events;
}

// Spans of a lane are given outermost first, in order.
void ExpectLanesNest(const std::vector<Event>& events) {
  std::map<int, std::vector<const Event*>> open;  // by lane
  for (const Event& event : events) {
    if (event.phase != "X") continue;
    std::vector<const Event*>& stack = open[event.tid];
    const auto end = [](const Event& of) { return of.begin + of.duration; };
    while (!stack.empty() && end(*stack.back()) <= event.begin + kRoundingUs) stack.pop_back();
    EXPECT_GE(event.duration, 0) << event.name;
    if (event.category == "launch") {
      EXPECT_TRUE(stack.empty()) << "launches of a lane come one after the other";
    } else {
      ASSERT_FALSE(stack.empty()) << event.name << " is in no launch";
      EXPECT_GE(event.begin + kRoundingUs, stack.back()->begin) << event.name;
      EXPECT_LE(end(event), end(*stack.back()) + kRoundingUs) << event.name;
    }
    stack.push_back(&event);
  }
}

// A call's track: the call, and its phases one after the other, which leave no gap.
void ExpectTracksNestAndCover(const std::vector<Event>& events) {
  std::map<std::string, std::vector<const Event*>> tracks;
  for (const Event& event : events) {
    if (event.category == "call") tracks[event.id].push_back(&event);
  }
  EXPECT_FALSE(tracks.empty());
  for (const auto& [id, track] : tracks) {
    ASSERT_EQ(track.size() % 2, 0);
    const Event& first = *track.front();
    const Event& last = *track.back();
    EXPECT_EQ(first.phase, "b");
    EXPECT_EQ(last.phase, "e");
    EXPECT_EQ(first.name, last.name);
    double covered = 0;
    double now = first.begin;
    for (std::size_t i = 1; i + 1 < track.size(); i += 2) {
      EXPECT_EQ(track[i]->name, track[i + 1]->name);
      EXPECT_NEAR(track[i]->begin, now, kRoundingUs) << id << " " << track[i]->name << " leaves a gap";
      EXPECT_GE(track[i + 1]->begin, track[i]->begin) << id << " " << track[i]->name;
      covered += track[i + 1]->begin - track[i]->begin;
      now = track[i + 1]->begin;
    }
    if (track.size() == 2) continue;
    EXPECT_NEAR(covered, last.begin - first.begin, 5 * kRoundingUs) << id;
  }
}

TEST(TraceTest, ShowsCallsDownToTheirKernelsWithoutAGap) {
  Daemon daemon;
  const Client client = Connect(daemon);
  std::string json;
  std::thread work([&] {
    for (int i = 0; i < 5; ++i) {
      EXPECT_THAT(client.Attend(RandomAttend(200, v1::ALGORITHM_STANDARD)), IsOk());
      EXPECT_THAT(client.Attend(RandomAttend(200, v1::ALGORITHM_FLASH)), IsOk());
      EXPECT_THAT(client.Attend(RandomAttend(-1, v1::ALGORITHM_FLASH)), Not(IsOk()));
      absl::SleepFor(absl::Milliseconds(50));
    }
  });
  const auto summary = client.CaptureTrace(For(absl::Seconds(3)), [&](const std::string& piece) {
    json += piece;
    return absl::OkStatus();
  });
  work.join();
  ASSERT_THAT(summary, IsOk());
  EXPECT_GT(summary->device_spans(), summary->launches());
  EXPECT_EQ(summary->dropped(), 0);

  const std::vector<Event> events = Parse(json);
  ExpectLanesNest(events);
  ExpectTracksNestAndCover(events);
  std::set<std::string> answered, with_kernel, with_copy, kernels;
  for (const Event& event : events) {
    if (event.phase == "b" && absl::StrContains(event.name, "/Attend") && event.code == "OK") {
      answered.insert(event.requests.begin(), event.requests.end());
      EXPECT_EQ(event.trace_id, kTraceId);
    }
    if (event.category == "kernel") {
      with_kernel.insert(event.requests.begin(), event.requests.end());
      kernels.insert(event.name);
    }
    if (event.category == "copy") with_copy.insert(event.requests.begin(), event.requests.end());
  }
  EXPECT_FALSE(answered.empty());
  EXPECT_THAT(with_kernel, IsSupersetOf(answered)) << "each call leads to its kernel by its id";
  EXPECT_THAT(with_copy, IsSupersetOf(answered));
  EXPECT_GE(kernels.size(), 2);
}

TEST(TraceTest, RequestsOfAStreamHaveTracksOfTheirOwn) {
  Daemon daemon;
  const Client client = Connect(daemon);
  std::string json;
  std::thread work([&] {
    absl::SleepFor(absl::Milliseconds(100));
    client::AttendStream stream = client.OpenAttendStream();
    v1::AttendResponse response;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.Write(RandomAttend(50, v1::ALGORITHM_FLASH)));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.Read(&response));
    EXPECT_THAT(stream.Finish(), IsOk());
  });
  const auto summary = client.CaptureTrace(For(absl::Seconds(2)), [&](const std::string& piece) {
    json += piece;
    return absl::OkStatus();
  });
  work.join();
  ASSERT_THAT(summary, IsOk());
  const std::vector<Event> events = Parse(json);
  ExpectLanesNest(events);
  ExpectTracksNestAndCover(events);
  std::set<std::string> tracks;
  for (const Event& event : events) {
    if (event.name == "request") tracks.insert(event.id);
  }
  EXPECT_EQ(tracks.size(), 3);
}

TEST(TraceTest, OneCaptureRunsAtATimeAndACancelledOneMakesRoom) {
  Daemon daemon;
  const auto ignore = [](const std::string&) { return absl::OkStatus(); };
  client::ClientOptions hasty;
  hasty.timeout = absl::Milliseconds(300);
  hasty.retry.max_attempts = 1;
  const absl::Time end = absl::Now() + absl::Seconds(20);
  // Until it is the first: the captures below are short, but there are many.
  std::thread first([&] {
    const Client client = *Client::Create(daemon.unix_address(), hasty);
    absl::Status status = absl::ResourceExhaustedError("not tried");
    while (absl::IsResourceExhausted(status) && absl::Now() < end) {
      status = client.CaptureTrace(For(absl::Minutes(1)), ignore).status();
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  });
  const Client client = Connect(daemon);
  absl::Status refusal;
  while (refusal.ok() && absl::Now() < end) refusal = client.CaptureTrace(For(absl::Milliseconds(1)), ignore).status();
  EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(client::ErrorReason(refusal), "CAPTURE_RUNNING");
  first.join();
  absl::Status later = refusal;
  while (!later.ok() && absl::Now() < end) later = client.CaptureTrace(For(absl::Milliseconds(1)), ignore).status();
  EXPECT_THAT(later, IsOk());
}

TEST(TraceTest, BadRequestsNameTheirField) {
  Daemon daemon;
  const Client client = Connect(daemon);
  const auto ignore = [](const std::string&) { return absl::OkStatus(); };
  for (const absl::Duration duration : {absl::ZeroDuration(), absl::Seconds(-1), absl::Minutes(2)}) {
    EXPECT_THAT(client.CaptureTrace(For(duration), ignore),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("duration")));
  }
  v1::CaptureTraceRequest request = For(absl::Milliseconds(1));
  request.set_max_records(-1);
  EXPECT_THAT(client.CaptureTrace(request, ignore), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_records")));
}

TEST(LogTest, AtDebugEachCallHasALineWithItsIdsAsJson) {
  Daemon daemon({"--log_level=debug", "--log_format=json"});
  const Client client = Connect(daemon);
  EXPECT_THAT(client.GetLoad(), IsOk());
  EXPECT_THAT(client.GetKvCache("kvCaches/none\n"), Not(IsOk()));
  daemon.process().Signal(SIGTERM);
  ASSERT_EQ(daemon.process().Wait(absl::Minutes(1)), 0);
  std::vector<google::protobuf::Struct> calls;
  std::istringstream lines(daemon.process().standard_error());
  for (std::string line; std::getline(lines, line);) {
    google::protobuf::Struct object;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &object).ok()) << line;
    if (object.fields().at("msg").string_value() == "request") calls.push_back(object);
  }
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0].fields().at("code").string_value(), "OK");
  EXPECT_EQ(calls[0].fields().at("method").string_value(), "ridgeline.v1.DeviceService/GetLoad");
  EXPECT_EQ(calls[0].fields().at("client").string_value(), "trace-test");
  EXPECT_EQ(calls[0].fields().at("trace_id").string_value(), kTraceId);
  EXPECT_NE(calls[0].fields().at("request").string_value(), calls[1].fields().at("request").string_value());
  EXPECT_NE(calls[1].fields().at("code").string_value(), "OK");
  EXPECT_FALSE(calls[1].fields().at("error").string_value().empty());
}

}  // namespace
}  // namespace ridgeline
