// A task moves a range of dense rows, in runs that end where a span or a page does: one copy of keys and one of values each.
// The copies are the C library's, which are SIMD.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/common/rounding.h"
#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::kv_cache {
namespace {

constexpr std::int64_t kTaskBytes = 256 << 10;

// Where a run of tokens lies, in rows.
struct Run {
  std::int64_t dense_row;
  std::int64_t paged_row;  // page * page_tokens + place in the page
  std::int64_t rows;
};

// Calls body(run) for what lies in dense rows [row_begin, row_end).
template <typename Body>
void ForEachRun(const PagedRows& rows, std::int64_t row_begin, std::int64_t row_end, const Body& body) {
  const TokenSpan* const spans_end = rows.spans + rows.num_spans;
  const auto ends_before = [](std::int64_t row, const TokenSpan& span) { return row < span.row_begin + span.num_tokens; };
  const TokenSpan* span = std::upper_bound(rows.spans, spans_end, row_begin, ends_before);
  for (; span != spans_end && span->row_begin < row_end; ++span) {
    std::int64_t row = std::max(row_begin, span->row_begin);
    const std::int64_t end = std::min(row_end, span->row_begin + span->num_tokens);
    while (row < end) {
      const std::int64_t token = span->token_begin + (row - span->row_begin);
      const std::int64_t place = token % rows.pages.page_tokens;
      const std::int64_t page = rows.block_table[span->table_begin + token / rows.pages.page_tokens];
      const std::int64_t run_rows = std::min(end - row, rows.pages.page_tokens - place);
      body(Run{.dense_row = row, .paged_row = page * rows.pages.page_tokens + place, .rows = run_rows});
      row += run_rows;
    }
  }
}

// Calls body(run) for every run, on all cores.
template <typename Body>
void ForEachRunInParallel(const PagedRows& rows, Executor& executor, const Body& body) {
  const std::int64_t row_bytes = rows.pages.KeyRowBytes() + rows.pages.ValueRowBytes();
  const std::int64_t task_rows = std::max<std::int64_t>(1, kTaskBytes / row_bytes);
  executor.ParallelFor(CeilDivide(rows.num_rows, task_rows), [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t row_begin = task_idx * task_rows;
    ForEachRun(rows, row_begin, std::min(rows.num_rows, row_begin + task_rows), body);
  });
}

void CopyRows(void* to, std::int64_t to_row, const void* from, std::int64_t from_row, std::int64_t rows,
              std::int64_t row_bytes) {
  std::memcpy(static_cast<char*>(to) + to_row * row_bytes, static_cast<const char*>(from) + from_row * row_bytes,
              rows * row_bytes);
}

}  // namespace

void AppendOnCpu(const AppendParams& params, Executor& executor) {
  const Pages& pages = params.to.pages;
  ForEachRunInParallel(params.to, executor, [&](const Run& run) {
    CopyRows(pages.key, run.paged_row, params.key, run.dense_row, run.rows, pages.KeyRowBytes());
    CopyRows(pages.value, run.paged_row, params.value, run.dense_row, run.rows, pages.ValueRowBytes());
  });
}

void GatherOnCpu(const GatherParams& params, Executor& executor) {
  const Pages& pages = params.from.pages;
  ForEachRunInParallel(params.from, executor, [&](const Run& run) {
    CopyRows(params.key, run.dense_row, pages.key, run.paged_row, run.rows, pages.KeyRowBytes());
    CopyRows(params.value, run.dense_row, pages.value, run.paged_row, run.rows, pages.ValueRowBytes());
  });
}

void CopyPagesOnCpu(const CopyPagesParams& params, Executor& executor) {
  executor.ParallelFor(params.num_layers * params.num_copies, [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t layer = task_idx / params.num_copies;
    const PageCopy& copy = params.copies[task_idx % params.num_copies];
    char* const key = static_cast<char*>(params.key) + layer * params.key_layer_stride_bytes;
    char* const value = static_cast<char*>(params.value) + layer * params.value_layer_stride_bytes;
    CopyRows(key, copy.destination, key, copy.source, 1, params.key_page_bytes);
    CopyRows(value, copy.destination, value, copy.source, 1, params.value_page_bytes);
  });
}

}  // namespace ridgeline::kernels::kv_cache
