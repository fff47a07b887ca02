// `ridgeline health`
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/commands.h"

ABSL_FLAG(std::string, service, "",
          "The service to ask about, e.g. ridgeline.v1.AttentionService. Empty: the daemon as a whole.");

namespace ridgeline::cli {

absl::StatusOr<Result> RunHealth(const client::Client& client) {
  const std::string service = absl::GetFlag(FLAGS_service);
  absl::Status status = client.CheckHealth(service);
  if (!status.ok()) return status;
  Result result;
  result.document.sections.push_back(
      {"", {{"service", "service", service.empty() ? "all" : service}, {"status", "status", "SERVING"}}});
  return result;
}

}  // namespace ridgeline::cli
