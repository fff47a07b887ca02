// What each client holds, for its quota. A client is known as long as it holds something.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace ridgeline::engine::kv_cache {

// Pages are those that were taken for the client's sequences and are not free yet, whoever uses them now.
struct ClientAccount {
  std::string client;
  std::int64_t caches = 0;
  std::int64_t sequences = 0;
  std::int64_t pages = 0;
  std::int64_t planned_pages = 0;  // for whoever adds up what a request would take
};

// Accounts live as long as something is on them. Not thread-safe.
class ClientLedger {
 public:
  // A copy; zeros if the client is not known.
  ClientAccount Balance(std::string_view client) const;

  ClientAccount* AddCache(std::string_view client);
  ClientAccount* AddSequence(std::string_view client);
  void RemoveCache(ClientAccount* account);
  void RemoveSequence(ClientAccount* account);
  // To be called after pages were taken off the account.
  void Settle(ClientAccount* account);

  std::int64_t num_caches() const { return num_caches_; }        // of all clients
  std::int64_t num_sequences() const { return num_sequences_; }  // likewise
  std::int64_t num_clients() const { return static_cast<std::int64_t>(accounts_.size()); }

 private:
  ClientAccount* Open(std::string_view client);

  std::map<std::string, ClientAccount, std::less<>> accounts_;
  std::int64_t num_caches_ = 0;
  std::int64_t num_sequences_ = 0;
};

}  // namespace ridgeline::engine::kv_cache
