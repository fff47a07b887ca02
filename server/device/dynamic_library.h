// Libraries opened at run time, so that the daemon starts where they are absent: cuBLAS and NVML.
//
// There is a second reason for cuBLAS. libcublasLt, which libcublas loads, has 94 KB of static TLS; were it loaded when the
// process starts, each thread's stack would have to hold that, and civetweb's threads have 100 KB. Opened later, its TLS is
// allocated when a thread first uses it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ridgeline::device {

// A view of a loaded library. Copies are cheap; the library is never unloaded: those that start threads or register exit
// handlers do not survive it.
class DynamicLibrary {
 public:
  // `name` as dlopen has it, e.g. "libnvidia-ml.so.1". Errors: NOT_FOUND with what the loader says.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& name);

  // Sets `function` to the symbol. Errors: NOT_FOUND naming the library and the symbol.
  template <typename Function>
  absl::Status Find(const char* symbol, Function*& function) const {
    absl::StatusOr<void*> address = Address(symbol);
    if (address.ok()) function = reinterpret_cast<Function*>(*address);
    return address.status();
  }

 private:
  DynamicLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  absl::StatusOr<void*> Address(const char* symbol) const;

  std::string name_;
  void* handle_;
};

}  // namespace ridgeline::device
