#include "server/engine/roofline_cache.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

// Raised when what is measured, or how, changes.
constexpr char kVersion[] = "ridgeline-roofline-1";
constexpr char kEnd[] = "end";

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the roofline file is damaged: ", what));
}

absl::StatusOr<double> ParseRate(absl::string_view word) {
  double rate = 0;
  if (!absl::SimpleAtod(word, &rate) || !std::isfinite(rate) || rate < 0) return Damaged(word);
  return rate;
}

absl::StatusOr<ComputeRoof> ParseComputeRoof(const std::vector<std::string>& words) {
  if (words.size() != 4) return Damaged("compute");
  for (const auto type : {kernels::DataType::kFloat32, kernels::DataType::kFloat16, kernels::DataType::kBFloat16}) {
    if (words[1] != Name(type)) continue;
    ComputeRoof roof = {.data_type = type};
    RIDGELINE_ASSIGN_OR_RETURN(roof.flops_per_second, ParseRate(words[2]));
    RIDGELINE_ASSIGN_OR_RETURN(roof.theoretical_flops_per_second, ParseRate(words[3]));
    return roof;
  }
  return Damaged(words[1]);
}

absl::Status ParseLine(const std::string& line, Roofline& roofline) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words[0] == "memory" && words.size() == 3) {
    RIDGELINE_ASSIGN_OR_RETURN(roofline.bytes_per_second, ParseRate(words[1]));
    RIDGELINE_ASSIGN_OR_RETURN(roofline.theoretical_bytes_per_second, ParseRate(words[2]));
    return absl::OkStatus();
  }
  if (words[0] == "compute") {
    RIDGELINE_ASSIGN_OR_RETURN(ComputeRoof roof, ParseComputeRoof(words));
    roofline.compute_roofs.push_back(roof);
    return absl::OkStatus();
  }
  std::int64_t seconds = 0;
  if (words[0] == "measured" && words.size() == 2 && absl::SimpleAtoi(words[1], &seconds)) {
    roofline.measure_time = absl::FromUnixSeconds(seconds);
    return absl::OkStatus();
  }
  return Damaged(line);
}

}  // namespace

std::string RooflineKey(const device::DeviceInfo& info) {
  return absl::StrCat(info.name, " | ", info.instruction_set, " | ", info.compute_units, " compute units");
}

std::string FormatRoofline(const std::string& key, const Roofline& roofline) {
  std::string text = absl::StrCat(kVersion, "\n", key, "\n", roofline.device, "\n");
  absl::StrAppendFormat(&text, "measured %d\n", absl::ToUnixSeconds(roofline.measure_time));
  absl::StrAppendFormat(&text, "memory %.17g %.17g\n", roofline.bytes_per_second, roofline.theoretical_bytes_per_second);
  for (const ComputeRoof& roof : roofline.compute_roofs) {
    absl::StrAppendFormat(&text, "compute %s %.17g %.17g\n", Name(roof.data_type), roof.flops_per_second,
                          roof.theoretical_flops_per_second);
  }
  return absl::StrCat(text, kEnd, "\n");
}

absl::StatusOr<Roofline> ParseRoofline(std::string_view text, const std::string& key) {
  const std::vector<std::string> lines = absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  if (lines.size() < 2 || lines[0] != kVersion || lines[1] != key) {
    return absl::NotFoundError("the roofline file is of another device or version");
  }
  // Version, key, device, at least one figure, the end mark, and what follows the last newline.
  if (lines.size() < 6 || lines[lines.size() - 2] != kEnd) return Damaged("it is cut short");
  Roofline roofline;
  roofline.device = lines[2];
  roofline.cached = true;
  for (std::size_t i = 3; i + 2 < lines.size(); ++i) RIDGELINE_RETURN_IF_ERROR(ParseLine(lines[i], roofline));
  if (roofline.bytes_per_second == 0 || roofline.compute_roofs.empty()) return Damaged("a peak is missing");
  return roofline;
}

absl::StatusOr<std::string> ReadRooflineFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

absl::Status WriteRooflineFile(const std::string& path, std::string_view text) {
  std::error_code error;
  const std::filesystem::path target(path);
  if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path(), error);
  const std::string aside = absl::StrCat(path, ".", getpid());
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    std::filesystem::remove(aside, error);
    return absl::UnavailableError(absl::StrCat("cannot write ", aside));
  }
  std::filesystem::rename(aside, target, error);
  if (!error) return absl::OkStatus();
  std::filesystem::remove(aside, error);
  return absl::UnavailableError(absl::StrCat("cannot replace ", path));
}

}  // namespace ridgeline::engine
