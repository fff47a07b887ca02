// Checks of our own invariants: they abort. No request, flag or file can reach one; what comes from outside gets a status.
#pragma once

namespace ridgeline::base {

// Logs where and what, then aborts.
[[noreturn]] void FailCheck(const char* file, int line, const char* condition);

}  // namespace ridgeline::base

#define RIDGELINE_CHECK(condition)                                                  \
  do {                                                                              \
    if (!(condition)) ::ridgeline::base::FailCheck(__FILE__, __LINE__, #condition); \
  } while (false)
