#include "server/identity/caller_authenticator.h"

#include <unistd.h>

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/base/error_reason.h"
#include "server/identity/token_file.h"

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
    options.find = [](const AccountKey& key) -> absl::StatusOr<Account> {
      for (const Account& account : {Account{501, 501, "anna"}, Account{502, 502, "boss"}}) {
        if (key == AccountKey(account.uid) || key == AccountKey(account.name)) return account;
      }
      if (key == AccountKey(uid_t{503})) {
        return absl::UnavailableError("the directory service is away");
      }
      if (key == AccountKey(geteuid())) return Account{geteuid(), geteuid(), "daemon-user"};
      return absl::NotFoundError("no such account");
    };
    return options;
  }

  // "anna", "boss (administrator)", or "UNAUTHENTICATED REASON".
  std::string Who(Transport transport, const std::vector<std::string>& authorization,
                  const std::string& certificate_name = "") {
    CallCredentials credentials;
    credentials.certificate_name = certificate_name;
    credentials.transport = transport;
    credentials.authorization = authorization;
    const CallerAuthenticator authenticator(options_);
    const std::optional<absl::StatusOr<Caller>> before = authenticator.DecideAtOnce(credentials);
    const absl::StatusOr<Caller> caller = authenticator.Decide(credentials);
    // What can be told without the account database, or is remembered of it, is the same.
    for (const auto& at_once : {before, authenticator.DecideAtOnce(credentials)}) {
      if (!at_once.has_value()) continue;
      EXPECT_EQ(at_once->status(), caller.status());
      if (caller.ok()) {
        EXPECT_EQ((*at_once)->user, caller->user);
      }
    }
    if (caller.ok()) return caller->user + (caller->administrator ? " (administrator)" : "");
    const auto reason = ReasonOf(caller.status());
    return absl::StatusCodeToString(caller.status().code()) +
           (reason.has_value() ? " " + reason->reason : "");
  }
  std::string Bearer(uid_t uid) { return "Bearer " + local_tokens_->Mint(uid); }

  // A token of `user` in a tokens file that the daemon knows.
  std::string AddBearerToken(const std::string& user, absl::Time expires = absl::InfiniteFuture()) {
    const NewToken token = MakeToken(user, absl::Now(), expires).value();
    const std::string path = testing::TempDir() + "/caller_authenticator_tokens";
    EXPECT_TRUE(EditTokenFile(path, [&](std::vector<StoredToken>* tokens) {
                  tokens->push_back(token.stored);
                  return absl::OkStatus();
                }).ok());
    bearer_tokens_ = BearerTokens::Open(path, {}).value();
    options_.bearer_tokens = bearer_tokens_.get();
    return token.text;
  }

  AccountCache accounts_;
  std::unique_ptr<BearerTokens> bearer_tokens_;
  std::unique_ptr<LocalTokens> local_tokens_ = LocalTokens::Create().value();
  CallerAuthenticator::Options options_;
};

TEST_F(CallerAuthenticatorTest, WhoReachesAPrivateSocketIsTheDaemonsUser) {
  options_.local_tokens = nullptr;
  EXPECT_EQ(Who(Transport::kUnixSocket, {}), "daemon-user (administrator)");
  EXPECT_EQ(Who(Transport::kUnixSocket, {"Bearer nonsense"}), "daemon-user (administrator)");
}

TEST_F(CallerAuthenticatorTest, ADaemonsUserWithoutAnAccountGoesByItsNumber) {
  AccountCache::Options none;
  none.find = [](const AccountKey&) -> absl::StatusOr<Account> {
    return absl::NotFoundError("no such account");
  };
  const AccountCache accounts(none);
  options_.accounts = &accounts;
  options_.local_tokens = nullptr;
  EXPECT_EQ(Who(Transport::kUnixSocket, {}), std::to_string(geteuid()) + " (administrator)");
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

TEST_F(CallerAuthenticatorTest, OnTcpATokenOrACertificateTells) {
  const std::string anna = AddBearerToken("anna"), stranger = AddBearerToken("stranger"),
                    old = AddBearerToken("anna", absl::Now() - absl::Seconds(1));
  std::string forged = anna;
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_EQ(Who(Transport::kTls, {"Bearer " + anna}), "anna");
  EXPECT_EQ(Who(Transport::kTls, {}, "boss"), "boss (administrator)");
  EXPECT_EQ(Who(Transport::kTls, {"Bearer " + anna}, "boss"), "anna") << "the token goes first";
  EXPECT_EQ(Who(Transport::kTls, {"Bearer " + forged}, "boss"), "UNAUTHENTICATED TOKEN_INVALID")
      << "a wrong token is not made good by a certificate";
  EXPECT_EQ(Who(Transport::kTls, {"Bearer " + stranger}), "UNAUTHENTICATED UNKNOWN_ACCOUNT");
  EXPECT_EQ(Who(Transport::kTls, {"Bearer " + old}), "UNAUTHENTICATED TOKEN_EXPIRED");
  EXPECT_EQ(Who(Transport::kTls, {"Basic " + anna}), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  EXPECT_EQ(Who(Transport::kTls, {}), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  EXPECT_EQ(Who(Transport::kTls, {}, "stranger"), "UNAUTHENTICATED UNKNOWN_ACCOUNT");
  EXPECT_EQ(Who(Transport::kOther, {"Bearer " + anna}, "boss"),
            "UNAUTHENTICATED UNAUTHENTICATED_CALLER")
      << "nothing is taken in clear";
  options_.bearer_tokens = nullptr;
  EXPECT_EQ(Who(Transport::kTls, {"Bearer " + anna}), "UNAUTHENTICATED TOKEN_INVALID");
}

TEST_F(CallerAuthenticatorTest, OnlyTheAccountDatabaseIsWaitedFor) {
  const CallerAuthenticator authenticator(options_);
  CallCredentials credentials;
  credentials.transport = Transport::kUnixSocket;
  credentials.authorization = {Bearer(501)};
  EXPECT_EQ(authenticator.DecideAtOnce(credentials), std::nullopt);
  EXPECT_TRUE(authenticator.Decide(credentials).ok());
  EXPECT_EQ(authenticator.DecideAtOnce(credentials)->value().user, "anna") << "now remembered";
  credentials.authorization = {"Bearer nonsense"};
  EXPECT_FALSE(authenticator.DecideAtOnce(credentials)->ok()) << "no account is needed for that";
  credentials.authorization = {Bearer(503)};
  EXPECT_FALSE(authenticator.Decide(credentials).ok());
  EXPECT_EQ(authenticator.DecideAtOnce(credentials), std::nullopt) << "the database was away";
}

TEST_F(CallerAuthenticatorTest, TokensOfTcpAreNotForUnixSockets) {
  const std::string anna = AddBearerToken("anna");
  EXPECT_EQ(Who(Transport::kUnixSocket, {"Bearer " + anna}), "UNAUTHENTICATED TOKEN_INVALID");
}

TEST_F(CallerAuthenticatorTest, LocalTokensAreForUnixSocketsAlone) {
  EXPECT_EQ(Who(Transport::kTls, {Bearer(501)}), "UNAUTHENTICATED TOKEN_INVALID");
  EXPECT_EQ(Who(Transport::kOther, {Bearer(501)}), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
}

// Jobs belong to uids.
TEST_F(CallerAuthenticatorTest, CallersHaveTheUidOfTheirAccount) {
  CallCredentials credentials;
  credentials.transport = Transport::kUnixSocket;
  credentials.authorization = {Bearer(501)};
  EXPECT_EQ(CallerAuthenticator(options_).Decide(credentials)->uid, 501);
  credentials.authorization = {Bearer(502)};
  EXPECT_EQ(CallerAuthenticator(options_).Decide(credentials)->uid, 502);
  options_.local_tokens = nullptr;
  EXPECT_EQ(CallerAuthenticator(options_).Decide(credentials)->uid, int64_t{geteuid()});
}

}  // namespace
}  // namespace megatrain
