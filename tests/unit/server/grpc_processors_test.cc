#include <grpc/support/cpu.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ridgeline {
namespace {

TEST(GrpcProcessors, AreAFewOfTheMachines) {
  EXPECT_EQ(gpr_cpu_num_cores(), std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

// gRPC has an array with an element for each, and takes this as an index.
TEST(GrpcProcessors, TheCurrentOneIsAmongThem) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) threads.emplace_back([] { EXPECT_LT(gpr_cpu_current_cpu(), gpr_cpu_num_cores()); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ridgeline
