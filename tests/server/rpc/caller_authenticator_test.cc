#include "server/rpc/caller_authenticator.h"

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"
#include "server/jobs/error_reason.h"

namespace megatrain {
namespace {

using Transport = CallCredentials::Transport;

class CallerAuthenticatorTest : public testing::Test {
 protected:
  CallerAuthenticatorTest() : accounts_(AccountOptions()) {
    options_.accounts = &accounts_;
    options_.local_tokens = local_tokens_.get();
    options_.administrators = {502};
  }

  static AccountCache::Options AccountOptions() {
    AccountCache::Options options;
    options.find_uid = [](uid_t uid) -> absl::StatusOr<Account> {
      if (uid == 501) return Account{501, 501, "anna"};
      if (uid == 502) return Account{502, 502, "boss"};
      if (uid == 503) return absl::UnavailableError("the directory service is away");
      if (uid == geteuid()) return Account{uid, uid, "daemon-user"};
      return absl::NotFoundError("no such account");
    };
    return options;
  }

  // "anna", "boss (administrator)", or "UNAUTHENTICATED REASON".
  std::string Who(Transport transport, const std::vector<std::string>& authorization) {
    CallCredentials credentials;
    credentials.transport = transport;
    credentials.authorization = authorization;
    const absl::StatusOr<Caller> caller = CallerAuthenticator(options_).Decide(credentials);
    if (caller.ok()) return caller->user + (caller->administrator ? " (administrator)" : "");
    const auto reason = ReasonOf(caller.status());
    return absl::StatusCodeToString(caller.status().code()) +
           (reason.has_value() ? " " + reason->reason : "");
  }
  std::string Bearer(uid_t uid) { return "Bearer " + local_tokens_->Mint(uid); }

  AccountCache accounts_;
  std::unique_ptr<LocalTokens> local_tokens_ = LocalTokens::Create().value();
  CallerAuthenticator::Options options_;
};

TEST_F(CallerAuthenticatorTest, WhoReachesAPrivateSocketIsTheDaemonsUser) {
  options_.local_tokens = nullptr;
  EXPECT_EQ(Who(Transport::kUnixSocket, {}), "daemon-user (administrator)");
  EXPECT_EQ(Who(Transport::kUnixSocket, {"Bearer nonsense"}), "daemon-user (administrator)");
}

TEST_F(CallerAuthenticatorTest, OnASharedSocketATokenTells) {
  EXPECT_EQ(Who(Transport::kUnixSocket, {Bearer(501)}), "anna");
  EXPECT_EQ(Who(Transport::kUnixSocket, {Bearer(502)}), "boss (administrator)");
  EXPECT_EQ(Who(Transport::kUnixSocket, {Bearer(geteuid())}), "daemon-user (administrator)");
  EXPECT_EQ(Who(Transport::kUnixSocket, {"bearer  " + local_tokens_->Mint(501)}), "anna");
}

TEST_F(CallerAuthenticatorTest, WithoutAGoodTokenNobodyIsKnown) {
  const std::string token = local_tokens_->Mint(501);
  const struct {
    std::vector<std::string> authorization;
    std::string expected;
  } cases[] = {
      {{}, "UNAUTHENTICATED UNAUTHENTICATED_CALLER"},
      {{""}, "UNAUTHENTICATED UNAUTHENTICATED_CALLER"},
      {{token}, "UNAUTHENTICATED UNAUTHENTICATED_CALLER"},
      {{"Basic " + token}, "UNAUTHENTICATED UNAUTHENTICATED_CALLER"},
      {{"Bearer "}, "UNAUTHENTICATED UNAUTHENTICATED_CALLER"},
      {{"Bearer " + token, "Bearer " + token}, "UNAUTHENTICATED UNAUTHENTICATED_CALLER"},
      {{"Bearer " + token.substr(1)}, "UNAUTHENTICATED TOKEN_INVALID"},
      {{"Bearer " + token.substr(0, 30)}, "UNAUTHENTICATED TOKEN_INVALID"},
      {{"Bearer " + LocalTokens::Create().value()->Mint(501)}, "UNAUTHENTICATED TOKEN_INVALID"},
      {{Bearer(599)}, "UNAUTHENTICATED UNKNOWN_ACCOUNT"},
      {{Bearer(503)}, "UNAVAILABLE"},
  };
  for (const auto& [authorization, expected] : cases) {
    EXPECT_EQ(Who(Transport::kUnixSocket, authorization), expected)
        << (authorization.empty() ? "none" : authorization[0]);
  }
}

TEST_F(CallerAuthenticatorTest, LocalTokensAreForUnixSocketsAlone) {
  EXPECT_EQ(Who(Transport::kTls, {Bearer(501)}), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  EXPECT_EQ(Who(Transport::kOther, {Bearer(501)}), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
}

}  // namespace
}  // namespace megatrain
