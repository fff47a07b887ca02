#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/support/cpu.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline {
namespace {

TEST(GrpcProcessors, AreAFewOfTheMachines) {
  EXPECT_EQ(gpr_cpu_num_cores(), std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

// What gRPC's own library is given when it asks: a definition that the program kept to itself would change nothing.
TEST(GrpcProcessors, AreWhatGrpcSees) {
  ASSERT_NE(grpc_version_string(), nullptr);  // so that its library is here
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "gpr_cpu_num_cores"), reinterpret_cast<void*>(&gpr_cpu_num_cores));
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "gpr_cpu_current_cpu"), reinterpret_cast<void*>(&gpr_cpu_current_cpu));
  Dl_info where = {};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "gpr_cpu_num_cores"), &where), 0);
  EXPECT_THAT(where.dli_fname, ::testing::HasSubstr("grpc_processors_test"));
}

// gRPC has an array with an element for each, and takes this as an index.
TEST(GrpcProcessors, TheCurrentOneIsAmongThem) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) threads.emplace_back([] { EXPECT_LT(gpr_cpu_current_cpu(), gpr_cpu_num_cores()); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ridgeline
