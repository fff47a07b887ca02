#include "server/device/dynamic_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace ridgeline::device {

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(absl::StrCat("cannot load ", name, ": ", dlerror()));
  return DynamicLibrary(name, handle);
}

absl::StatusOr<void*> DynamicLibrary::Address(const char* symbol) const {
  void* const address = dlsym(handle_, symbol);
  if (address == nullptr) return absl::NotFoundError(absl::StrCat(name_, " has no ", symbol));
  return address;
}

}  // namespace ridgeline::device
