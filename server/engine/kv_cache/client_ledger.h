// What each client holds, for its quota. A client is known as long as it holds something.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/node_hash_map.h"

namespace ridgeline::engine::kv_cache {

struct ClientAccount {
  std::string client;
  std::int64_t caches = 0;
  std::int64_t sequences = 0;
  std::int64_t pages = 0;

  bool IsEmpty() const { return caches == 0 && sequences == 0 && pages == 0; }
};

// Not thread-safe.
class ClientLedger {
 public:
  // What the client holds; zeros if it is not known.
  ClientAccount Balance(std::string_view client) const;

  // The client's account, made if need be; who opens it adds something to it. The pointer lives until Close.
  ClientAccount* Open(std::string_view client);

  // To be called after something was taken off the account: forgets it if nothing is left.
  void Close(ClientAccount* account);

  std::int64_t size() const { return static_cast<std::int64_t>(accounts_.size()); }

 private:
  absl::node_hash_map<std::string, ClientAccount> accounts_;
};

}  // namespace ridgeline::engine::kv_cache
