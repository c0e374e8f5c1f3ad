#include "server/identity/local_tokens.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

class LocalTokensTest : public testing::Test {
 protected:
  // "" if it is good.
  std::string Refused(const std::string& token) {
    const absl::Status status = tokens_->Verify(token).status();
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    // Errors are logged.
    EXPECT_TRUE(token.size() < 8 || !absl::StrContains(status.message(), token));
    return ReasonOf(status)->reason;
  }

  LocalTokens::Clock::time_point now_ = LocalTokens::Clock::now();
  std::unique_ptr<LocalTokens> tokens_ = LocalTokens::Create([this] { return now_; }).value();
};

TEST_F(LocalTokensTest, ATokenIsForItsUid) {
  for (const uid_t uid : {uid_t{0}, uid_t{1000}, uid_t{4294967294}}) {
    EXPECT_EQ(tokens_->Verify(tokens_->Mint(uid)).value(), uid);
  }
  EXPECT_NE(tokens_->Mint(1), tokens_->Mint(1));
}

TEST_F(LocalTokensTest, ItExpires) {
  const std::string token = tokens_->Mint(1000);
  now_ += LocalTokens::kLifetime - std::chrono::seconds(1);
  EXPECT_EQ(Refused(token), "");
  now_ += std::chrono::seconds(1);
  EXPECT_EQ(Refused(token), "TOKEN_EXPIRED");
}

TEST_F(LocalTokensTest, AnyChangedByteIsAForgery) {
  const std::string token = tokens_->Mint(1000);
  for (size_t i = 0; i < token.size(); ++i) {
    std::string forged = token;
    forged[i] = forged[i] == '1' ? '2' : '1';
    EXPECT_EQ(Refused(forged), "TOKEN_INVALID") << forged;
  }
  for (size_t bytes = 0; bytes < token.size(); ++bytes) {
    EXPECT_EQ(Refused(token.substr(0, bytes)), "TOKEN_INVALID") << bytes;
  }
  EXPECT_EQ(Refused(absl::StrReplaceAll(token, {{"_1000.", "_0."}})), "TOKEN_INVALID");
  EXPECT_EQ(Refused(token + "0"), "TOKEN_INVALID");
  EXPECT_EQ(Refused(token + std::string(1, '\0')), "TOKEN_INVALID");
  EXPECT_EQ(Refused(std::string(100000, '.')), "TOKEN_INVALID");
  EXPECT_EQ(Refused(absl::StrCat("mt_", token)), "TOKEN_INVALID");
}

TEST_F(LocalTokensTest, ATokenOfAnotherProcessIsAForgery) {
  const auto other = LocalTokens::Create([this] { return now_; }).value();
  EXPECT_EQ(Refused(other->Mint(1000)), "TOKEN_INVALID");
}

}  // namespace
}  // namespace megatrain
