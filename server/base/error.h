// What an error tells the caller beyond its code and message, carried inside absl::Status as payloads, so that engine and
// device can name fields and reasons without knowing the wire. server/api turns them into google.rpc details.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ridgeline::base {

// Stable reasons, in capitals, for google.rpc.ErrorInfo. Clients may branch on them: never rename one.
inline constexpr std::string_view kReasonInvalidField = "INVALID_FIELD";
inline constexpr std::string_view kReasonMalformedMessage = "MALFORMED_MESSAGE";
inline constexpr std::string_view kReasonUnsupported = "UNSUPPORTED";
inline constexpr std::string_view kReasonQueueFull = "QUEUE_FULL";
inline constexpr std::string_view kReasonOutOfMemory = "OUT_OF_MEMORY";
inline constexpr std::string_view kReasonMessageTooLarge = "MESSAGE_TOO_LARGE";
inline constexpr std::string_view kReasonQuotaExceeded = "QUOTA_EXCEEDED";
inline constexpr std::string_view kReasonKvCacheNotFound = "KV_CACHE_NOT_FOUND";
inline constexpr std::string_view kReasonKvCacheLost = "KV_CACHE_LOST";
inline constexpr std::string_view kReasonKvCacheExists = "KV_CACHE_EXISTS";
inline constexpr std::string_view kReasonKvCacheBusy = "KV_CACHE_BUSY";
inline constexpr std::string_view kReasonKvCacheFull = "KV_CACHE_FULL";
inline constexpr std::string_view kReasonSequenceNotFound = "SEQUENCE_NOT_FOUND";
inline constexpr std::string_view kReasonSequenceEvicted = "SEQUENCE_EVICTED";
inline constexpr std::string_view kReasonSequenceExists = "SEQUENCE_EXISTS";
inline constexpr std::string_view kReasonSequenceBusy = "SEQUENCE_BUSY";
inline constexpr std::string_view kReasonChecksumMismatch = "CHECKSUM_MISMATCH";
inline constexpr std::string_view kReasonTruncatedExport = "TRUNCATED_EXPORT";
inline constexpr std::string_view kReasonBenchmarkNotFound = "BENCHMARK_NOT_FOUND";
inline constexpr std::string_view kReasonBenchmarkRunning = "BENCHMARK_RUNNING";
inline constexpr std::string_view kReasonCaptureRunning = "CAPTURE_RUNNING";
inline constexpr std::string_view kReasonDraining = "DRAINING";
inline constexpr std::string_view kReasonDeadlineExceeded = "DEADLINE_EXCEEDED";
inline constexpr std::string_view kReasonCancelled = "CANCELLED";
inline constexpr std::string_view kReasonDeviceFailed = "DEVICE_FAILED";
inline constexpr std::string_view kReasonInternal = "INTERNAL";

// INVALID_ARGUMENT about one request field; `field` is its path in the request message, e.g. "dense.key.shape". The message
// says what came and what is allowed; it need not repeat the path.
absl::Status InvalidField(std::string_view field, std::string_view message, std::string_view reason = kReasonInvalidField);

// UNIMPLEMENTED: well-formed, but this build or device lacks it; the message says what has it. `field` may be empty.
absl::Status Unsupported(std::string_view field, std::string_view message);

// RESOURCE_EXHAUSTED or UNAVAILABLE with a hint when to come back.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// Any status with a reason; an existing reason stays.
absl::Status WithReason(absl::Status status, std::string_view reason);

// A status with a fact for programs, e.g. "requested_bytes" and "1024"; one of the same name is replaced.
absl::Status WithDetail(absl::Status status, std::string_view name, std::string_view value);

// What was attached; for a status without a reason, one that follows from its code. `ErrorReason` of an ok status is empty.
std::string ErrorReason(const absl::Status& status);
std::optional<std::string> ErrorField(const absl::Status& status);
std::optional<absl::Duration> RetryDelay(const absl::Status& status);
std::map<std::string, std::string> ErrorDetails(const absl::Status& status);

}  // namespace ridgeline::base
