// Names of caches. Each client has a name space of its own, so that it cannot even ask for what others have; or all share one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::engine::kv_cache {

class KvCache;

// Not thread-safe.
class CacheNames {
 public:
  // Of one name space, by id; null: the cache is still being made.
  using Caches = std::map<std::string, std::shared_ptr<KvCache>, std::less<>>;

  explicit CacheNames(bool are_shared) : are_shared_(are_shared) {}

  // Those that the client can name.
  const Caches& Of(std::string_view client) const;
  // All that are made, of every client.
  std::vector<std::shared_ptr<KvCache>> MadeCaches() const;

  // Null takes the name for a cache that is to come.
  void Put(std::string_view client, const std::string& id, std::shared_ptr<KvCache> cache);
  // One that is there.
  void Remove(std::string_view client, const std::string& id);

 private:
  std::string_view NameSpaceOf(std::string_view client) const { return are_shared_ ? "" : client; }

  const bool are_shared_;
  std::map<std::string, Caches, std::less<>> name_spaces_;  // none is empty
};

}  // namespace ridgeline::engine::kv_cache
