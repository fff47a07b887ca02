#include "server/engine/page_tables.h"

#include <cstddef>

#include "server/base/status_macros.h"
#include "server/device/buffer.h"

namespace ridgeline::engine {
namespace {

using device::Buffer;
using kernels::kv_cache::PageCopy;
using kernels::kv_cache::Pages;
using kernels::kv_cache::TokenSpan;

std::byte* At(const Buffer& buffer, std::int64_t offset_bytes) { return static_cast<std::byte*>(buffer.data()) + offset_bytes; }

}  // namespace

Pages LayerPages(const kv_cache::SequenceUse& use) {
  const kv_cache::Geometry& geometry = use.geometry();
  return {.data_type = geometry.data_type,
          .kv_heads = geometry.kv_heads,
          .head_dim = geometry.head_dim,
          .value_head_dim = geometry.value_head_dim,
          .page_tokens = geometry.page_tokens,
          .key = At(use.arena(), geometry.KeyPlaneOffsetBytes(use.layer())),
          .value = At(use.arena(), geometry.ValuePlaneOffsetBytes(use.layer()))};
}

void PageTables::Add(const kv_cache::SequenceUse& use) {
  for (const kv_cache::UsedSequence& sequence : use.sequences()) {
    const auto table_begin = static_cast<std::int64_t>(block_table_.size());
    table_begins_.push_back(table_begin);
    block_table_.insert(block_table_.end(), sequence.table_head.begin(), sequence.table_head.end());
    block_table_.insert(block_table_.end(), sequence.table_tail.begin(), sequence.table_tail.end());
    const std::int64_t new_tokens = sequence.end_tokens - sequence.begin_tokens;
    if (new_tokens == 0) continue;
    spans_.push_back(
        {.row_begin = num_rows_, .num_tokens = new_tokens, .table_begin = table_begin, .token_begin = sequence.begin_tokens});
    num_rows_ += new_tokens;
  }
  copies_.insert(copies_.end(), use.page_copies().begin(), use.page_copies().end());
}

void PageTables::AddTo(LaunchInputs& inputs) {
  spans_section_ = inputs.AddTable(spans_);
  copies_section_ = inputs.AddTable(copies_);
  block_table_section_ = inputs.AddTable(block_table_);
}

const std::int32_t* PageTables::BlockTable(const LaunchInputs& inputs) const {
  return static_cast<const std::int32_t*>(inputs.data(block_table_section_));
}

absl::Status PageTables::QueueCopies(device::Lane& lane, const kv_cache::SequenceUse& use, const LaunchInputs& inputs) const {
  if (copies_.empty()) return absl::OkStatus();
  const kv_cache::Geometry& geometry = use.geometry();
  return lane.CopyPages({.key = use.arena().data(),
                         .value = At(use.arena(), geometry.ValuePlaneOffsetBytes(0)),
                         .num_layers = geometry.layers,
                         .key_layer_stride_bytes = geometry.KeyPlaneBytes(),
                         .value_layer_stride_bytes = geometry.ValuePlaneBytes(),
                         .key_page_bytes = geometry.KeyPageBytes(),
                         .value_page_bytes = geometry.ValuePageBytes(),
                         .copies = static_cast<const PageCopy*>(inputs.data(copies_section_)),
                         .num_copies = static_cast<std::int64_t>(copies_.size())});
}

kernels::kv_cache::AppendParams PageTables::AppendParamsOf(const kv_cache::SequenceUse& use, const LaunchInputs& inputs,
                                                           const void* key, const void* value) const {
  return {.to = {.pages = LayerPages(use),
                 .block_table = BlockTable(inputs),
                 .spans = static_cast<const TokenSpan*>(inputs.data(spans_section_)),
                 .num_spans = static_cast<std::int64_t>(spans_.size()),
                 .num_rows = num_rows_},
          .key = key,
          .value = value};
}

absl::Status PageTables::QueueAppend(device::Lane& lane, const kv_cache::SequenceUse& use, const LaunchInputs& inputs,
                                     const void* key, const void* value) const {
  RIDGELINE_RETURN_IF_ERROR(QueueCopies(lane, use, inputs));
  if (spans_.empty()) return absl::OkStatus();
  return lane.AppendKeyValue(AppendParamsOf(use, inputs, key, value));
}

}  // namespace ridgeline::engine
