// What a launch must know of its sequences' pages: block tables, where new rows go, which pages are copied first. Built on the
// host from the uses of all members, uploaded with the launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/kv_cache/kv_cache.h"
#include "server/device/device.h"
#include "server/engine/kv_cache/sequence_use.h"
#include "server/engine/launch_inputs.h"

namespace ridgeline::engine {

// The pages of the use's layer.
kernels::kv_cache::Pages LayerPages(const kv_cache::SequenceUse& use);

class PageTables {
 public:
  // The sequences of a use; all uses are of one cache and layer. New rows are those of the uses before, then this one's, in the
  // order of their sequences.
  void Add(const kv_cache::SequenceUse& use);

  // Of the i-th sequence of all: its first entry in the block table.
  std::int64_t table_begin(std::size_t i) const { return table_begins_[i]; }
  bool HasNewRows() const { return num_rows_ > 0; }
  const std::vector<std::int32_t>& block_table() const { return block_table_; }

  // Nothing is added afterwards, and this object outlives the upload.
  void AddTo(LaunchInputs& inputs);

  const std::int32_t* BlockTable(const LaunchInputs& inputs) const;

  // Copies shared pages that are written; before anything is appended. `use` is any of those added, here and below.
  absl::Status QueueCopies(device::Lane& lane, const kv_cache::SequenceUse& use, const LaunchInputs& inputs) const;

  // Where the new rows go. `key` and `value` are these rows on the device.
  kernels::kv_cache::AppendParams AppendParamsOf(const kv_cache::SequenceUse& use, const LaunchInputs& inputs, const void* key,
                                                 const void* value) const;

  // Copies, then appends.
  absl::Status QueueAppend(device::Lane& lane, const kv_cache::SequenceUse& use, const LaunchInputs& inputs, const void* key,
                           const void* value) const;

 private:
  std::vector<kernels::kv_cache::TokenSpan> spans_;  // of sequences that get new rows
  std::vector<kernels::kv_cache::PageCopy> copies_;
  std::vector<std::int32_t> block_table_;
  std::vector<std::int64_t> table_begins_;  // by sequence
  std::int64_t num_rows_ = 0;
  LaunchInputs::Section spans_section_ = 0;
  LaunchInputs::Section copies_section_ = 0;
  LaunchInputs::Section block_table_section_ = 0;
};

}  // namespace ridgeline::engine
