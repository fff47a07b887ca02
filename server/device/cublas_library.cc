#include "server/device/cublas_library.h"

#include <cstddef>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/device/dynamic_library.h"

namespace ridgeline::device {
namespace {

absl::Status LoadFunctions(kernels::CublasFunctions& functions) {
  RIDGELINE_ASSIGN_OR_RETURN(const DynamicLibrary library,
                             DynamicLibrary::Open(absl::StrCat("libcublas.so.", CUBLAS_VER_MAJOR)));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasCreate_v2", functions.create));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasDestroy_v2", functions.destroy));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasSetStream_v2", functions.set_stream));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasSetWorkspace_v2", functions.set_workspace));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasSetMathMode", functions.set_math_mode));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasGemmEx", functions.gemm_ex));
  RIDGELINE_RETURN_IF_ERROR(library.Find("cublasGemmStridedBatchedEx", functions.gemm_strided_batched_ex));
  return library.Find("cublasGetStatusString", functions.get_status_string);
}

}  // namespace

absl::StatusOr<kernels::CublasFunctions> LoadCublas() {
  kernels::CublasFunctions functions = {};
  const absl::Status loaded = LoadFunctions(functions);
  if (!loaded.ok()) return absl::FailedPreconditionError(absl::StrCat("cuBLAS is not usable: ", loaded.message()));
  return functions;
}

absl::StatusOr<std::unique_ptr<CublasHandle>> CublasHandle::Create(CudaContext& context,
                                                                   const kernels::CublasFunctions& functions,
                                                                   cudaStream_t stream, void* workspace,
                                                                   std::int64_t workspace_bytes) {
  cublasHandle_t handle = nullptr;
  RIDGELINE_RETURN_IF_ERROR(context.Call("cublasCreate", [&] { return functions.create(&handle); }));
  auto owner = absl::WrapUnique(new CublasHandle(context, {.functions = &functions, .handle = handle}));
  // The stream first: setting it resets the workspace.
  RIDGELINE_RETURN_IF_ERROR(context.Call("cublasSetStream", [&] { return functions.set_stream(handle, stream); }));
  RIDGELINE_RETURN_IF_ERROR(context.Call("cublasSetWorkspace", [&] {
    return functions.set_workspace(handle, workspace, static_cast<std::size_t>(workspace_bytes));
  }));
  return owner;
}

CublasHandle::~CublasHandle() {
  context_.CallOrLog("cublasDestroy", [this] { return view_.functions->destroy(view_.handle); });
}

}  // namespace ridgeline::device
