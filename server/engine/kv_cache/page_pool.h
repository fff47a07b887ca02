// Which pages of a cache are free, and how many sequences use each of the others.
#pragma once

#include <cstdint>
#include <vector>

#include "server/engine/kv_cache/client_ledger.h"

namespace ridgeline::engine::kv_cache {

// A page is used from Take until as many Releases as there were Takes and Shares. Not thread-safe.
class PagePool {
 public:
  explicit PagePool(std::int64_t num_pages);

  // A free page; there is one. It counts against `payer` until it is free again. Pages freed last are taken first: the others
  // may never have been touched.
  std::int32_t Take(ClientAccount* payer);
  // One more sequence uses the page.
  void Share(std::int32_t page);
  // One less. The account that paid for the page if it is free now, else null.
  ClientAccount* Release(std::int32_t page);

  std::int64_t references(std::int32_t page) const { return pages_[page].references; }

  // A use writes the page in place: it is not to be copied meanwhile.
  void SetWritten(std::int32_t page, bool written) { pages_[page].written = written; }
  bool IsWritten(std::int32_t page) const { return pages_[page].written; }

  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t num_free() const { return num_pages() - num_used_; }
  std::int64_t num_used() const { return num_used_; }

 private:
  struct Page {
    ClientAccount* payer = nullptr;
    std::int32_t references = 0;
    bool written = false;
  };

  std::vector<Page> pages_;
  std::vector<std::int32_t> freed_;  // free pages below num_touched_
  std::int64_t num_touched_ = 0;     // pages from here on were never taken
  std::int64_t num_used_ = 0;
};

}  // namespace ridgeline::engine::kv_cache
