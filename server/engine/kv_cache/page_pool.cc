#include "server/engine/kv_cache/page_pool.h"

#include "server/base/check.h"

namespace ridgeline::engine::kv_cache {

PagePool::PagePool(std::int64_t num_pages) : pages_(num_pages) {}

std::int32_t PagePool::Take(ClientAccount* payer) {
  RIDGELINE_CHECK(num_free() > 0);
  std::int32_t page = 0;
  if (freed_.empty()) {
    page = static_cast<std::int32_t>(num_touched_++);
  } else {
    page = freed_.back();
    freed_.pop_back();
  }
  pages_[page] = {.payer = payer, .references = 1};
  ++payer->pages;
  ++num_used_;
  return page;
}

void PagePool::Share(std::int32_t page) {
  RIDGELINE_CHECK(pages_[page].references > 0);
  ++pages_[page].references;
}

ClientAccount* PagePool::Release(std::int32_t page) {
  RIDGELINE_CHECK(pages_[page].references > 0);
  if (--pages_[page].references > 0) return nullptr;
  RIDGELINE_CHECK(!pages_[page].written);
  freed_.push_back(page);
  --num_used_;
  ClientAccount* const payer = pages_[page].payer;
  --payer->pages;
  return payer;
}

}  // namespace ridgeline::engine::kv_cache
