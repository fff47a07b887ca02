// Early return on failure, for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// RIDGELINE_RETURN_IF_ERROR(expression): returns the expression's status from the enclosing function unless it is ok.
#define RIDGELINE_RETURN_IF_ERROR(expression)                                                          \
  do {                                                                                                 \
    if (absl::Status ridgeline_status = (expression); !ridgeline_status.ok()) return ridgeline_status; \
  } while (false)

// RIDGELINE_ASSIGN_OR_RETURN(target, expression): assigns the value of a StatusOr, or returns its status. `target` may declare.
#define RIDGELINE_ASSIGN_OR_RETURN(target, expression) \
  RIDGELINE_ASSIGN_OR_RETURN_IMPL_(RIDGELINE_CONCATENATE_(ridgeline_status_or_, __LINE__), target, expression)
#define RIDGELINE_ASSIGN_OR_RETURN_IMPL_(status_or, target, expression) \
  auto status_or = (expression);                                        \
  if (!status_or.ok()) return std::move(status_or).status();            \
  target = *std::move(status_or)
#define RIDGELINE_CONCATENATE_(a, b) RIDGELINE_CONCATENATE_IMPL_(a, b)
#define RIDGELINE_CONCATENATE_IMPL_(a, b) a##b
