// main() of tests that need a GPU. Without one they are skipped and the reason is printed; with RIDGELINE_REQUIRE_GPU=1, which
// a run on a GPU machine sets, that is a failure.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/gpu/gpu.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string why_no_gpu = ::testing::GTEST_FLAG(list_tests) ? "" : ridgeline::gpu::WhyNoGpu();
  if (why_no_gpu.empty()) return RUN_ALL_TESTS();
  if (std::getenv("RIDGELINE_REQUIRE_GPU") != nullptr) {
    std::fprintf(stderr, "RIDGELINE_REQUIRE_GPU is set, but there is %s\n", why_no_gpu.c_str());
    return 1;
  }
  std::printf("[  SKIPPED ] %s\n", why_no_gpu.c_str());
  return 0;
}
