#include "server/identity/bearer_tokens.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error_reason.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BearerTokensTest : public testing::Test {
 protected:
  void SetUp() override {
    anna_ = Add("anna");
    BearerTokens::Options options;
    options.log = [this](const std::string& line) { log_.push_back(line); };
    options.now = [this] { return now_; };
    auto tokens = BearerTokens::Open(path_, options);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    tokens_ = *std::move(tokens);
  }

  std::string Add(const std::string& user, absl::Time expires = absl::InfiniteFuture()) {
    const NewToken token = MakeToken(user, now_, expires).value();
    EXPECT_TRUE(EditTokenFile(path_, [&](std::vector<StoredToken>* tokens) {
                  tokens->push_back(token.stored);
                  return absl::OkStatus();
                }).ok());
    return token.text;
  }
  void Revoke(const std::string& user) {
    EXPECT_TRUE(EditTokenFile(path_, [&](std::vector<StoredToken>* tokens) {
                  std::erase_if(*tokens, [&](const StoredToken& t) { return t.user == user; });
                  return absl::OkStatus();
                }).ok());
  }
  // The user, or the reason.
  std::string Who(const std::string& token) {
    const absl::StatusOr<std::string> user = tokens_->Verify(token);
    if (user.ok()) return *user;
    EXPECT_EQ(user.status().code(), absl::StatusCode::kUnauthenticated);
    return ReasonOf(user.status())->reason;
  }
  void LetItLook() { now_ += BearerTokens::kLookInterval; }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  const TestDirectory directory_;
  const std::string path_ = directory_ / "tokens";
  std::string anna_;
  std::vector<std::string> log_;
  std::unique_ptr<BearerTokens> tokens_;
};

TEST_F(BearerTokensTest, KnowsTokensByTheirSecret) {
  EXPECT_EQ(Who(anna_), "anna");
  std::string forged = anna_;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_EQ(Who(forged), "TOKEN_INVALID");
  EXPECT_EQ(Who(anna_.substr(0, 40)), "TOKEN_INVALID");
  EXPECT_EQ(Who(""), "TOKEN_INVALID");
  EXPECT_EQ(Who(MakeToken("anna", now_, absl::InfiniteFuture())->text), "TOKEN_INVALID");
}

TEST_F(BearerTokensTest, WhatIsAddedOrRevokedTakesEffect) {
  const std::string bob = Add("bob");
  LetItLook();
  EXPECT_EQ(Who(bob), "bob");
  Revoke("anna");
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
  EXPECT_EQ(Who(bob), "bob");
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(BearerTokensTest, AClockThatIsSetBackKeepsNoRevokedTokenGood) {
  LetItLook();
  EXPECT_EQ(Who(anna_), "anna");
  Revoke("anna");
  now_ -= absl::Hours(1);
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
}

TEST_F(BearerTokensTest, TheyExpire) {
  const std::string brief = Add("bob", now_ + absl::Hours(1));
  LetItLook();
  EXPECT_EQ(Who(brief), "bob");
  now_ += absl::Hours(1);
  EXPECT_EQ(Who(brief), "TOKEN_EXPIRED");
  EXPECT_EQ(Who(anna_), "anna");
}

TEST_F(BearerTokensTest, AFileThatBecameBadLetsNobodyInUntilItIsMended) {
  std::ofstream(path_, std::ios::app) << "nonsense\n";
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr("tokens:4: expects ID"), HasSubstr("no token"))))
      << "told once";
  std::filesystem::remove(path_);
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID") << "nor one that is gone";
  anna_ = Add("anna");
  LetItLook();
  EXPECT_EQ(Who(anna_), "anna");
  EXPECT_THAT(log_.back(), HasSubstr("is good again"));
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID") << "nor one that others may read";
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  LetItLook();
  EXPECT_EQ(Who(anna_), "anna");
}

TEST_F(BearerTokensTest, AReloadTakesAnotherFileOrNone) {
  EXPECT_FALSE(tokens_->Reload(directory_ / "none").ok());
  EXPECT_EQ(Who(anna_), "anna");
  const std::string other = directory_ / "other";
  std::filesystem::copy_file(path_, other);
  ASSERT_EQ(chmod(other.c_str(), 0600), 0);
  std::filesystem::remove(path_);
  ASSERT_TRUE(tokens_->Reload(other).ok());
  LetItLook();
  EXPECT_EQ(Who(anna_), "anna");
}

TEST_F(BearerTokensTest, ABadFileIsRefusedAtTheStart) {
  EXPECT_TRUE(absl::IsNotFound(BearerTokens::Open(directory_ / "none", {}).status()));
  std::ofstream(path_) << "nonsense\n";
  EXPECT_TRUE(absl::IsInvalidArgument(BearerTokens::Open(path_, {}).status()));
}

TEST_F(BearerTokensTest, AReloadCountsAtOnceAndEndsTheTroubleWithTheFileBefore) {
  std::ofstream(path_, std::ios::app) << "nonsense\n";
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
  const NewToken bob = MakeToken("bob", now_, absl::InfiniteFuture()).value();
  const std::string other = directory_.Write("other", FormatTokenFile({bob.stored}));
  ASSERT_EQ(chmod(other.c_str(), 0600), 0);
  ASSERT_TRUE(tokens_->Reload(other).ok());
  EXPECT_EQ(Who(bob.text), "bob");
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID") << "its file does not count any more";
}

TEST_F(BearerTokensTest, AnotherFaultOfTheFileIsToldToo) {
  std::ofstream(path_, std::ios::app) << "nonsense\n";
  LetItLook();
  EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
  std::filesystem::remove(path_);
  for (int i = 0; i < 2; ++i) {
    LetItLook();
    EXPECT_EQ(Who(anna_), "TOKEN_INVALID");
  }
  EXPECT_THAT(log_, ElementsAre(HasSubstr("expects ID"),
                                AllOf(HasSubstr(path_), HasSubstr("no token is good"))));
}

}  // namespace
}  // namespace megatrain
