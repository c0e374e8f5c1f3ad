#include "server/identity/account.h"

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(AccountTest, FindsByNameAndNumber) {
  const absl::StatusOr<Account> root = FindAccount("root");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->uid, 0u);
  EXPECT_EQ(FindAccount(uid_t{0}), root);
}

TEST(AccountTest, WhatThisMachineDoesNotHaveIsNotFound) {
  for (const std::string& name :
       {std::string("no-such-user-here"), std::string(), std::string("root\0x", 6),
        std::string("root "), std::string("0")}) {
    EXPECT_TRUE(absl::IsNotFound(FindAccount(name).status())) << name;
  }
  EXPECT_TRUE(absl::IsNotFound(FindAccount(uid_t{3999999999}).status()));
}

TEST(AccountCacheTest, BelievesWhatItFoundForAWhile) {
  int asked = 0;
  absl::Time now = absl::FromUnixSeconds(1000);
  absl::StatusOr<Account> answer = Account{7, 8, "anna"};
  AccountCache::Options options;
  options.find = [&](const AccountKey&) {
    ++asked;
    return answer;
  };
  options.now = [&now] { return now; };
  const AccountCache accounts(options);
  EXPECT_EQ(accounts.Find("anna")->uid, 7u);
  answer = absl::NotFoundError("gone");
  EXPECT_TRUE(accounts.Find("anna").ok());
  EXPECT_EQ(asked, 1);
  now += AccountCache::kAnswerLifetime;
  EXPECT_TRUE(absl::IsNotFound(accounts.Find("anna").status())) << "an account that was removed";
  EXPECT_TRUE(absl::IsNotFound(accounts.Find("anna").status()));
  EXPECT_EQ(asked, 2) << "that there is none is believed too";
  // A clock that was set back.
  answer = Account{7, 8, "anna"};
  now -= absl::Hours(1);
  EXPECT_TRUE(accounts.Find("anna").ok());
}

TEST(AccountCacheTest, MemoryIsAskedWithoutTheDatabase) {
  absl::Time now = absl::UnixEpoch();
  int asked = 0;
  AccountCache::Options options;
  options.find = [&asked](const AccountKey& key) -> absl::StatusOr<Account> {
    ++asked;
    if (key == AccountKey("anna")) return Account{501, 501, "anna"};
    return absl::NotFoundError("no such account");
  };
  options.now = [&now] { return now; };
  const AccountCache cache(options);
  EXPECT_EQ(cache.FindInMemory("anna"), std::nullopt);
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(cache.Find("anna").ok());
  EXPECT_FALSE(cache.Find("bob").ok());
  EXPECT_EQ(cache.FindInMemory("anna")->value().uid, 501u);
  EXPECT_FALSE(cache.FindInMemory("bob")->ok()) << "that there is none is remembered too";
  now += AccountCache::kAnswerLifetime;
  EXPECT_EQ(cache.FindInMemory("anna"), std::nullopt);
  EXPECT_EQ(asked, 2);
}

TEST(AccountCacheTest, ADatabaseThatCannotBeReadIsAskedAgain) {
  int asked = 0;
  AccountCache::Options options;
  options.find = [&asked](const AccountKey&) -> absl::StatusOr<Account> {
    if (++asked == 1) return absl::UnavailableError("broken");
    return Account{7, 8, "anna"};
  };
  const AccountCache accounts(options);
  EXPECT_TRUE(absl::IsUnavailable(accounts.Find(uid_t{7}).status()));
  EXPECT_EQ(accounts.Find(uid_t{7})->name, "anna");
}

TEST(AccountCacheTest, OfManyStrangersTheFirstAreForgotten) {
  AccountCache::Options options;
  options.find = [](const AccountKey&) -> absl::StatusOr<Account> {
    return absl::NotFoundError("no such account");
  };
  options.now = [] { return absl::UnixEpoch(); };
  const AccountCache accounts(options);
  for (int i = 0; i < 5000; ++i) EXPECT_FALSE(accounts.Find("stranger" + std::to_string(i)).ok());
  EXPECT_EQ(accounts.FindInMemory("stranger0"), std::nullopt);
  EXPECT_NE(accounts.FindInMemory("stranger4999"), std::nullopt);
}

}  // namespace
}  // namespace megatrain
