#include "tests/resilience/crowd.h"

#include <memory>

#include "tests/resilience/decoding_callers.h"
#include "tests/resilience/measuring_callers.h"
#include "tests/resilience/paced_callers.h"
#include "tests/resilience/rude_peers.h"

namespace ridgeline::resilience {
namespace {

constexpr int kPacedThreads = 4;
constexpr int kDecodingThreads = 4;
constexpr int kFusingThreads = 2;
constexpr int kUnreadStreams = 2;

}  // namespace

Crowd::Crowd(const CrowdOptions& options, Tally& tally) {
  const std::string& address = options.address;
  const auto pace = std::make_shared<Pace>(options.requests_per_second);
  std::uint64_t seed = options.seed;
  for (int i = 0; i < kPacedThreads; ++i) {
    threads_.emplace_back([=, this, &tally, seed = ++seed] { CallAtPace(address, seed, *pace, tally, ends_); });
  }
  for (int i = 0; i < kDecodingThreads; ++i) {
    threads_.emplace_back([=, this, &tally, seed = ++seed] { Decode(address, seed, tally, ends_); });
  }
  for (int i = 0; i < kFusingThreads; ++i) {
    threads_.emplace_back([=, this, &tally, seed = ++seed] { Fuse(address, seed, tally, ends_); });
  }
  threads_.emplace_back([=, this, &tally] { Benchmark(address, tally, ends_); });
  for (int i = 0; i < kUnreadStreams; ++i) threads_.emplace_back([=, this] { NeverRead(address, ends_); });
  threads_.emplace_back([=, this, seed = ++seed] { SayHalf(address, seed, ends_); });
  threads_.emplace_back([=, this, &tally] { Storm(address, tally, ends_); });
}

Crowd::~Crowd() {
  ends_ = true;
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace ridgeline::resilience
