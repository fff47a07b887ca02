// Minutes at three times what the daemon can do, from callers of every kind: what is accepted is answered right and soon, the
// rest is told when to come back, and afterwards everything is as it was.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/resilience/crowd.h"
#include "tests/resilience/paced_callers.h"
#include "tests/resilience/process_usage.h"
#include "tests/resilience/tally.h"
#include "tests/support/daemon.h"
#include "tests/support/exposition.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::resilience {
namespace {

using support::Daemon;
using support::IsOk;
using ::testing::IsEmpty;

constexpr std::uint64_t kSeed = 8;
constexpr int kLanes = 2;
constexpr int kQueue = 16;
constexpr double kOverload = 3;
constexpr int kMoreThreads = 8;  // gRPC starts some for its timers when it sees fit
#ifdef RIDGELINE_SANITIZED
constexpr std::int64_t kMoreResidentBytes = std::numeric_limits<std::int64_t>::max();  // what was freed is kept
#else
constexpr std::int64_t kMoreResidentBytes = 128 << 20;  // malloc keeps what messages took
#endif
constexpr absl::Duration kSettleTime = absl::Minutes(1);

// Of load, after a first second in which threads, connections and caches of memory come to be.
absl::Duration SoakTime() {
  double seconds = 6;
  const char* const wanted = std::getenv("RIDGELINE_SOAK_SECONDS");
  if (wanted != nullptr && (!absl::SimpleAtod(wanted, &seconds) || seconds <= 0)) std::abort();
  return absl::Seconds(seconds);
}

// What is to be as before when nobody calls any more.
struct Holdings {
  double allocated_bytes, free_pages, used_pages, caches, queued, busy_lanes;
  int num_files;

  bool operator==(const Holdings&) const = default;
};

std::ostream& operator<<(std::ostream& stream, const Holdings& holdings) {
  return stream << holdings.allocated_bytes << " B allocated, " << holdings.free_pages << " pages free, " << holdings.used_pages
                << " in use, " << holdings.caches << " caches, " << holdings.queued << " queued, " << holdings.busy_lanes
                << " lanes busy, " << holdings.num_files << " files";
}

class SoakTest : public ::testing::Test {
 protected:
  SoakTest() : daemon_({"--lanes=2", "--threads=1", "--max_queued_requests=16"}) {}

  Holdings Held() {
    const std::string text = support::HttpRequest("GET", daemon_.metrics_address(), "/metrics").body;
    const auto value = [&](const char* series) { return support::SampleOf(text, series).value_or(-1); };
    return {.allocated_bytes = value("ridgeline_allocator_allocated_bytes"),
            .free_pages = value("ridgeline_kv_pages{state=\"free\"}"),
            .used_pages = value("ridgeline_kv_pages{state=\"used\"}"),
            .caches = value("ridgeline_kv_caches"),
            .queued = value("ridgeline_queue_requests"),
            .busy_lanes = value("ridgeline_lanes_busy"),
            .num_files = UsageOf(daemon_.process().pid()).num_files};
  }

  // What the daemon holds when that does not change any more: answers and connections may still be on their way out.
  Holdings AwaitRest() {
    constexpr int kSame = 5;  // times in a row
    Holdings held = Held();
    for (int same = 0; same < kSame;) {
      absl::SleepFor(absl::Milliseconds(50));
      const Holdings before = std::exchange(held, Held());
      same = held == before ? same + 1 : 0;
    }
    return held;
  }

  // What the daemon holds when it holds as much as that, or else after some time.
  Holdings Settle(const Holdings& aim) {
    const absl::Time end = absl::Now() + kSettleTime;
    Holdings held = Held();
    while (!(held == aim) && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(20));
      held = Held();
    }
    return held;
  }

  void Load(double requests_per_second, absl::Duration time, Tally& tally) {
    const Crowd crowd({daemon_.tcp_address(), requests_per_second, kSeed}, tally);
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end && daemon_.process().Wait(absl::ZeroDuration()) == -1) absl::SleepFor(absl::Milliseconds(50));
  }

  Daemon daemon_;
};

std::int64_t NumWrong(const Tally& tally) {
  std::int64_t sum = 0;
  for (const auto& [kind, count] : tally.wrong()) sum += count;
  return sum;
}

void Print(const Tally& tally, absl::Duration time, double capacity, absl::Duration bound, const ProcessUsage& before,
           const ProcessUsage& after) {
  const auto quantile_ms = [&](double share) { return absl::ToInt64Milliseconds(tally.LatencyQuantile(share)); };
  std::cout << "soak of " << absl::ToInt64Seconds(time) << " s; capacity " << capacity << "/s, offered " << kOverload * capacity
            << "/s and the others; answered " << tally.num_answered() << ", wrong " << NumWrong(tally) << ", refused "
            << tally.num_refused() << ", given up by callers " << tally.num_given_up() << "; latency of the answered p50 "
            << quantile_ms(0.5) << " ms, p99 " << quantile_ms(0.99) << " ms, longest " << quantile_ms(1) << " ms, bound "
            << absl::ToInt64Milliseconds(bound) << " ms; resident " << before.resident_bytes / 1'000'000 << " MB before, "
            << after.resident_bytes / 1'000'000 << " MB after; threads " << before.num_threads << ", " << after.num_threads
            << "; files " << before.num_files << ", " << after.num_files << "\n";
}

TEST_F(SoakTest, ThreeTimesTheCapacityIsServedInPartAndLeavesNothingBehind) {
  const double capacity = MeasureCapacity(daemon_.tcp_address(), kLanes);
  ASSERT_GT(capacity, 0);
  const Holdings at_start = AwaitRest();
  EXPECT_EQ(at_start.allocated_bytes, 0);
  Tally first;
  Load(kOverload * capacity, absl::Seconds(1), first);
  ASSERT_EQ(Settle(at_start), at_start);
  const ProcessUsage before = UsageOf(daemon_.process().pid());

  Tally tally;
  Load(kOverload * capacity, SoakTime(), tally);
  EXPECT_EQ(Settle(at_start), at_start);
  const ProcessUsage after = UsageOf(daemon_.process().pid());
  const absl::Duration bound = absl::Seconds(2 + 8 * (kQueue + kLanes) / capacity);
  Print(tally, SoakTime(), capacity, bound, before, after);

  EXPECT_THAT(tally.unexpected(), IsEmpty());
  EXPECT_GT(tally.num_answered(), 0);
  EXPECT_THAT(tally.wrong(), IsEmpty());
  EXPECT_GT(tally.num_refused(), 0) << "there was no overload";
  EXPECT_GT(tally.num_given_up(), 0);
  // Who is admitted has at most the queue before it. Without a limit, what came last would have waited for twice the soak.
  EXPECT_LT(tally.LatencyQuantile(0.99), bound);
  EXPECT_LE(after.num_threads, before.num_threads + kMoreThreads);
  EXPECT_LE(after.resident_bytes - before.resident_bytes, kMoreResidentBytes);

  // With a sanitizer this finds what the process itself lost.
  daemon_.process().Signal(SIGTERM);
  EXPECT_EQ(daemon_.process().Wait(absl::Minutes(1)), 0) << daemon_.process().standard_error();
}

}  // namespace
}  // namespace ridgeline::resilience
