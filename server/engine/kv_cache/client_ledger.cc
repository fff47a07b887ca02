#include "server/engine/kv_cache/client_ledger.h"

namespace ridgeline::engine::kv_cache {

ClientAccount ClientLedger::Balance(std::string_view client) const {
  const auto found = accounts_.find(client);
  return found == accounts_.end() ? ClientAccount() : found->second;
}

ClientAccount* ClientLedger::AddCache(std::string_view client) {
  ClientAccount* const account = Open(client);
  ++account->caches;
  ++num_caches_;
  return account;
}

ClientAccount* ClientLedger::AddSequence(std::string_view client) {
  ClientAccount* const account = Open(client);
  ++account->sequences;
  ++num_sequences_;
  return account;
}

void ClientLedger::RemoveCache(ClientAccount* account) {
  --account->caches;
  --num_caches_;
  Settle(account);
}

void ClientLedger::RemoveSequence(ClientAccount* account) {
  --account->sequences;
  --num_sequences_;
  Settle(account);
}

void ClientLedger::Settle(ClientAccount* account) {
  if (account->caches > 0 || account->sequences > 0 || account->pages > 0) return;
  accounts_.erase(accounts_.find(account->client));
}

ClientAccount* ClientLedger::Open(std::string_view client) {
  ClientAccount& account = accounts_[std::string(client)];
  account.client = client;
  return &account;
}

}  // namespace ridgeline::engine::kv_cache
