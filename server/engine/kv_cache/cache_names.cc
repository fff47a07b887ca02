#include "server/engine/kv_cache/cache_names.h"

#include <utility>

namespace ridgeline::engine::kv_cache {

const CacheNames::Caches& CacheNames::Of(std::string_view client) const {
  static const auto* const kNone = new Caches();
  const auto found = name_spaces_.find(NameSpaceOf(client));
  return found == name_spaces_.end() ? *kNone : found->second;
}

std::vector<std::shared_ptr<KvCache>> CacheNames::MadeCaches() const {
  std::vector<std::shared_ptr<KvCache>> made;
  for (const auto& [client, caches] : name_spaces_) {
    for (const auto& [id, cache] : caches) {
      if (cache != nullptr) made.push_back(cache);
    }
  }
  return made;
}

void CacheNames::Put(std::string_view client, const std::string& id, std::shared_ptr<KvCache> cache) {
  name_spaces_[std::string(NameSpaceOf(client))][id] = std::move(cache);
}

void CacheNames::Remove(std::string_view client, const std::string& id) {
  const auto name_space = name_spaces_.find(NameSpaceOf(client));
  name_space->second.erase(id);
  if (name_space->second.empty()) name_spaces_.erase(name_space);
}

}  // namespace ridgeline::engine::kv_cache
