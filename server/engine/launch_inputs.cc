#include "server/engine/launch_inputs.h"

#include <array>
#include <utility>
#include <variant>

#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

constexpr std::int64_t kSectionAlignmentBytes = 512;  // as a Buffer's
constexpr std::array<std::byte, kSectionAlignmentBytes> kPadding = {};

}  // namespace

LaunchInputs::Section LaunchInputs::BeginSection() {
  const std::int64_t excess_bytes = size_bytes_ % kSectionAlignmentBytes;
  if (excess_bytes > 0) Append({kPadding.data(), kSectionAlignmentBytes - excess_bytes});
  places_.emplace_back().begin_bytes = size_bytes_;
  return places_.size() - 1;
}

void LaunchInputs::Append(device::HostSlice slice) {
  if (slice.size_bytes == 0) return;
  slices_.push_back(slice);
  size_bytes_ += slice.size_bytes;
}

LaunchInputs::Section LaunchInputs::AddBytes(device::HostSlice slice) {
  const Section section = BeginSection();
  Append(slice);
  return section;
}

LaunchInputs::Section LaunchInputs::AddTensors(absl::Span<const TensorSource* const> tensors) {
  const Section section = BeginSection();
  for (const TensorSource* tensor : tensors) {
    if (tensor->elements == 0) continue;
    if (std::holds_alternative<RandomFill>(tensor->storage)) {
      places_[section].random = tensor;
      continue;
    }
    const auto& data = std::get<InlineData>(tensor->storage);
    for (const device::HostSlice& slice : data.slices) Append(slice);
    if (data.owner != nullptr) owners_.push_back(data.owner);
  }
  return section;
}

absl::Status LaunchInputs::Queue(device::Lane& lane) {
  if (size_bytes_ > 0) {
    auto owners = std::make_shared<const std::vector<std::shared_ptr<const void>>>(std::move(owners_));
    RIDGELINE_ASSIGN_OR_RETURN(uploaded_, lane.Upload(slices_, std::move(owners)));
  }
  for (Place& place : places_) {
    if (place.random == nullptr) continue;
    const auto& fill = std::get<RandomFill>(place.random->storage);
    RIDGELINE_ASSIGN_OR_RETURN(
        place.made, lane.UploadRandom(place.random->data_type, place.random->elements, fill.seed, static_cast<float>(fill.mean),
                                      static_cast<float>(fill.standard_deviation)));
  }
  return absl::OkStatus();
}

void* LaunchInputs::data(Section section) const {
  const Place& place = places_[section];
  if (place.random != nullptr) return place.made.data();
  return static_cast<std::byte*>(uploaded_.data()) + place.begin_bytes;
}

}  // namespace ridgeline::engine
