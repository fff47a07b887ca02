#include "server/engine/kv_cache/client_ledger.h"

#include "gtest/gtest.h"

namespace ridgeline::engine::kv_cache {
namespace {

TEST(ClientLedgerTest, CountsWhatEachClientHolds) {
  ClientLedger ledger;
  ledger.AddCache("alice");
  ledger.AddSequence("alice");
  ledger.AddSequence("alice");
  ledger.AddSequence("bob");
  EXPECT_EQ(ledger.Balance("alice").caches, 1);
  EXPECT_EQ(ledger.Balance("alice").sequences, 2);
  EXPECT_EQ(ledger.Balance("bob").sequences, 1);
  EXPECT_EQ(ledger.Balance("carol").sequences, 0);
  EXPECT_EQ(ledger.num_sequences(), 3);
}

TEST(ClientLedgerTest, ForgetsAClientThatHoldsNothing) {
  ClientLedger ledger;
  ClientAccount* const account = ledger.AddSequence("alice");
  EXPECT_EQ(ledger.AddCache("alice"), account);
  ledger.RemoveSequence(account);
  EXPECT_EQ(ledger.num_clients(), 1);
  ledger.RemoveCache(account);
  EXPECT_EQ(ledger.num_clients(), 0);
  EXPECT_EQ(ledger.num_sequences(), 0);
}

TEST(ClientLedgerTest, PagesKeepAnAccount) {
  ClientLedger ledger;
  ClientAccount* const account = ledger.AddSequence("alice");
  account->pages = 1;
  ledger.RemoveSequence(account);
  EXPECT_EQ(ledger.Balance("alice").pages, 1);
  account->pages = 0;
  ledger.Settle(account);
  EXPECT_EQ(ledger.num_clients(), 0);
}

TEST(ClientLedgerTest, TheClientWithoutANameIsOneToo) {
  ClientLedger ledger;
  ClientAccount* const account = ledger.AddSequence("");
  EXPECT_EQ(ledger.Balance("").sequences, 1);
  ledger.RemoveSequence(account);
  EXPECT_EQ(ledger.num_clients(), 0);
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
