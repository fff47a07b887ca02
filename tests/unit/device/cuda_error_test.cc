#include "server/device/cuda_error.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/device/cuda_info.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaError, SuccessIsOk) { EXPECT_OK(ToStatus("cudaMalloc", cudaSuccess)); }

TEST(CudaError, MessagesNameTheCallAndTheError) {
  EXPECT_THAT(ToStatus("cudaMemcpyAsync", cudaErrorInvalidValue),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("cudaMemcpyAsync"), HasSubstr("cudaErrorInvalidValue"))));
  EXPECT_THAT(
      ToStatus("cublasGemmEx", CUBLAS_STATUS_NOT_SUPPORTED),
      StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("cublasGemmEx"), HasSubstr("CUBLAS_STATUS_NOT_SUPPORTED"))));
}

struct Classified {
  kernels::CudaStatus status;
  absl::StatusCode code;
  bool is_sticky;
};

TEST(CudaError, Classification) {
  constexpr absl::StatusCode kLost = absl::StatusCode::kUnavailable;
  const Classified table[] = {{cudaErrorIllegalAddress, kLost, true},
                              {cudaErrorLaunchFailure, kLost, true},
                              {cudaErrorLaunchTimeout, kLost, true},
                              {cudaErrorAssert, kLost, true},
                              {cudaErrorHardwareStackError, kLost, true},
                              {cudaErrorIllegalInstruction, kLost, true},
                              {cudaErrorMisalignedAddress, kLost, true},
                              {cudaErrorECCUncorrectable, kLost, true},
                              {cudaErrorNvlinkUncorrectable, kLost, true},
                              {cudaErrorContextIsDestroyed, kLost, true},
                              {cudaErrorUnknown, kLost, true},
                              {cudaErrorMemoryAllocation, absl::StatusCode::kResourceExhausted, false},
                              {CUBLAS_STATUS_ALLOC_FAILED, absl::StatusCode::kResourceExhausted, false},
                              {cudaErrorNoDevice, absl::StatusCode::kFailedPrecondition, false},
                              {cudaErrorInsufficientDriver, absl::StatusCode::kFailedPrecondition, false},
                              {cudaErrorNoKernelImageForDevice, absl::StatusCode::kFailedPrecondition, false},
                              {cudaErrorInvalidValue, absl::StatusCode::kInternal, false},
                              {cudaErrorInvalidConfiguration, absl::StatusCode::kInternal, false},
                              {CUBLAS_STATUS_INVALID_VALUE, absl::StatusCode::kInternal, false}};
  for (const Classified& row : table) {
    const absl::Status status = ToStatus("call", row.status);
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_EQ(IsSticky(row.status.cuda), row.is_sticky) << status;
  }
}

TEST(CudaError, ReasonsFollowTheCode) {
  EXPECT_EQ(base::ErrorReason(ToStatus("call", cudaErrorIllegalAddress)), base::kReasonDeviceFailed);
  EXPECT_EQ(base::ErrorReason(ToStatus("call", cudaErrorMemoryAllocation)), base::kReasonOutOfMemory);
  EXPECT_EQ(base::ErrorReason(ToStatus("call", cudaErrorInvalidValue)), base::kReasonInternal);
}

// H100 SXM: 989.4 TFLOP/s dense in float16 and 66.9 in float32, at 1830 and 1980 MHz, with 132 multiprocessors.
TEST(CudaInfo, PeaksAreThoseOfTheDataSheet) {
  EXPECT_NEAR(TensorFlopsPerClock(90) * 132 * 1.830e9, 989.4e12, 1e12);
  EXPECT_NEAR(Float32FlopsPerClock(90) * 132 * 1.980e9, 66.9e12, 0.1e12);
  EXPECT_NEAR(TensorFlopsPerClock(80) * 108 * 1.410e9, 312e12, 1e12);  // A100
  EXPECT_EQ(TensorFlopsPerClock(75), 0);
}

}  // namespace
}  // namespace ridgeline::device
