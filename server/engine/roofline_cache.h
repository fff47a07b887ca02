// The roofline as a small text file, so that only the first start of a daemon on a device measures.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/device/device.h"
#include "server/engine/roofline.h"

namespace ridgeline::engine {

// What the peaks depend on: a change of any makes the file stale.
std::string RooflineKey(const device::DeviceInfo& info);

std::string FormatRoofline(const std::string& key, const Roofline& roofline);

// NOT_FOUND for the text of another key or version; DATA_LOSS for a damaged one.
absl::StatusOr<Roofline> ParseRoofline(std::string_view text, const std::string& key);

// NOT_FOUND if there is no such file.
absl::StatusOr<std::string> ReadRooflineFile(const std::string& path);

// Makes missing folders, writes aside and renames: a reader sees the old file or the new one, whole.
absl::Status WriteRooflineFile(const std::string& path, std::string_view text);

}  // namespace ridgeline::engine
