#include "server/base/check.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace ridgeline::base {

void FailCheck(const char* file, int line, const char* condition) {
  Log(LogLevel::kError, "check failed", {{"condition", condition}, {"at", absl::StrCat(file, ":", line)}});
  std::abort();
}

}  // namespace ridgeline::base
