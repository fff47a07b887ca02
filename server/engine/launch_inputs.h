// Everything that a launch reads beside the pages: tables and the tensors of its members, uploaded in one transfer, since each
// transfer has its price and there are many small ones.
//
//   buffer   ┌ section 0 ┐pad┌ section 1 ───────────┐pad┌ section 2 ┐
//            │ a table   │   │ query of a, of b, .. │   │ ...       │        sections begin aligned as buffers do
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/device/buffer.h"
#include "server/device/device.h"
#include "server/engine/check_tensor.h"

namespace ridgeline::engine {

class LaunchInputs {
 public:
  using Section = std::size_t;

  // `items` outlives the upload.
  template <typename T>
  Section AddTable(const std::vector<T>& items) {
    return AddBytes({items.data(), static_cast<std::int64_t>(items.size() * sizeof(T))});
  }

  // The tensors, one after the other. One that the device makes (RandomFill) is the only one of its section.
  Section AddTensors(absl::Span<const TensorSource* const> tensors);

  // Queues the upload; once, after all sections were added. The lane keeps the tensors' bytes alive until it has read them.
  absl::Status Queue(device::Lane& lane);

  // Where the section begins on the device. Of an empty one nothing may be read.
  void* data(Section section) const;

 private:
  struct Place {
    std::int64_t begin_bytes = 0;          // in uploaded_
    const TensorSource* random = nullptr;  // made by the device, into `made`
    device::Buffer made;
  };

  Section AddBytes(device::HostSlice slice);
  Section BeginSection();
  void Append(device::HostSlice slice);

  std::vector<Place> places_;  // by section
  std::vector<device::HostSlice> slices_;
  std::int64_t size_bytes_ = 0;
  std::vector<std::shared_ptr<const void>> owners_;
  device::Buffer uploaded_;
};

}  // namespace ridgeline::engine
