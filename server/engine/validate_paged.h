// The gates for calls on sequences of KV caches: Attend over pages, and AppendKeyValue. What came is either a problem that
// every later step may trust, or an error that names the field. As in validate_attend.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/append_request.h"
#include "server/engine/attend_problem.h"
#include "server/engine/attend_request.h"
#include "server/engine/check_tensor.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/token_tensor.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

struct PagedAttendProblem {
  // Keys as they are expected to be when the work leaves: other work may come first.
  AttendProblem attend;
  bool appends = false;  // attend.key and attend.value
  std::shared_ptr<const kv_cache::SequenceSelection> selection;
  std::vector<Access> accesses;
};

struct AppendProblem {
  TensorSource key;
  TensorSource value;
  Shape key_shape = {};  // as the request has it
  std::shared_ptr<const kv_cache::SequenceSelection> selection;
  std::vector<Access> accesses;
};

// Paths of the fields of a request that appends; those of ridgeline.v1.AppendKeyValueRequest.
struct AppendFields {
  const char* sequences = "sequences";
  const char* layer = "layer";
  const char* key = "key";
  const char* value = "value";
  const char* lengths = "lengths";
};

// Errors: INVALID_ARGUMENT, UNIMPLEMENTED, with the field's path in ridgeline.v1.AttendRequest; NOT_FOUND. Renews the lease of
// the cache.
absl::StatusOr<PagedAttendProblem> ValidatePagedAttend(const kv_cache::Caller& caller, AttendRequest request,
                                                       kv_cache::KvCacheStore& store);

// Likewise, with the paths in `fields`.
absl::StatusOr<AppendProblem> ValidateAppend(const kv_cache::Caller& caller, AppendKeyValueRequest request,
                                             kv_cache::KvCacheStore& store, const AppendFields& fields = {});

// Ok if rows of keys and values are such as the cache holds. Errors name the fields or those below them.
absl::Status CheckRowsFit(const kv_cache::Geometry& geometry, const char* key_field, const TokenTensor& key,
                          const char* value_field, const TokenTensor& value);

}  // namespace ridgeline::engine
