// A reload that takes away a file that listeners look at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/daemon/access.h"
#include "server/identity/caller_authenticator.h"
#include "server/identity/token_file.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AccessReloadTest : public testing::Test {
 protected:
  AccessReloadTest() {
    const TestAuthority authority;
    const TestCertificate server = authority.Issue("server", "DNS:localhost");
    config_.listen = {"127.0.0.1:0"};
    config_.tls_certificate = Write("server.pem", server.certificate);
    config_.tls_key = Write("server.key", server.key);
    config_.tls_client_ca = Write("ca.pem", authority.certificate());
    config_.tokens_file = Write("tokens", "");
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path;
  }

  static const CallerAuthenticator& Callers(Access& access) {
    return static_cast<const CallerAuthenticator&>(access.authenticator());
  }

  static bool Administers(Access& access, const std::string& name) {
    CallCredentials call;
    call.transport = CallCredentials::Transport::kTls;
    call.certificate_name = name;
    return Callers(access).Decide(call).value().administrator;
  }

  const TestDirectory directory_;
  DaemonConfig config_;
};

TEST_F(AccessReloadTest, WhatListenersLookAtStaysSet) {
  const auto access = Access::Prepare(
      config_, [](const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_TRUE((*access)->Reload(config_).ok());
  const auto without = [&](std::string DaemonConfig::*file) {
    DaemonConfig config = config_;
    (config.*file).clear();
    return std::string((*access)->Reload(config).message());
  };
  EXPECT_THAT(without(&DaemonConfig::tls_certificate), HasSubstr("tls.certificate is no longer"));
  EXPECT_THAT(without(&DaemonConfig::tls_client_ca), HasSubstr("tls.client_ca is no longer"));
  EXPECT_THAT(without(&DaemonConfig::tokens_file), HasSubstr("tokens_file is no longer"));
  EXPECT_TRUE((*access)->Reload(config_).ok());
}

TEST_F(AccessReloadTest, WhatTheyDoNotLookAtMayBeLeftOut) {
  config_.tls_client_ca.clear();
  const auto access = Access::Prepare(
      config_, [](const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_TRUE((*access)->Reload(config_).ok());
}

// man is user 6 of group 12 on Debian, bin user 2 of group 2.
TEST_F(AccessReloadTest, AdministratorsAreThoseOfTheLastConfiguration) {
  config_.administrators = {"man"};
  const auto access = Access::Prepare(
      config_, [](const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_TRUE(Administers(**access, "man"));
  EXPECT_FALSE(Administers(**access, "bin"));
  config_.administrators = {"bin"};
  ASSERT_TRUE((*access)->Reload(config_).ok());
  EXPECT_FALSE(Administers(**access, "man"));
  EXPECT_TRUE(Administers(**access, "bin"));
}

TEST_F(AccessReloadTest, WhereTheTokensCannotBeReadNothingIsTakenOver) {
  config_.administrators = {"man"};
  const auto access = Access::Prepare(
      config_, [](const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(access.ok()) << access.status();
  const absl::Time before = (*access)->tls()->Current()->expires;
  const TestCertificate other = TestAuthority().Issue("server", "DNS:localhost", /*days=*/90);
  config_.administrators = {"bin"};
  config_.tls_certificate = Write("other.pem", other.certificate);
  config_.tls_key = Write("other.key", other.key);
  config_.tokens_file = directory_ / "none";
  const absl::Status refused = (*access)->Reload(config_);
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("tokens_file: "), HasSubstr("`megatraind token add USER` makes it")));
  EXPECT_EQ((*access)->tls()->Current()->expires, before);
  EXPECT_TRUE(Administers(**access, "man"));
  EXPECT_FALSE(Administers(**access, "bin"));
}

TEST_F(AccessReloadTest, TokensOfAnotherFileReplaceThoseBefore) {
  const NewToken token = MakeToken("daemon", absl::Now(), absl::InfiniteFuture()).value();
  ASSERT_TRUE(EditTokenFile(config_.tokens_file, [&](std::vector<StoredToken>* tokens) {
                tokens->push_back(token.stored);
                return absl::OkStatus();
              }).ok());
  const auto access = Access::Prepare(
      config_, [](const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(access.ok()) << access.status();
  CallCredentials call;
  call.transport = CallCredentials::Transport::kTls;
  call.authorization = {"Bearer " + token.text};
  EXPECT_TRUE(Callers(**access).Decide(call).ok());
  config_.tokens_file = Write("others", "");
  ASSERT_TRUE((*access)->Reload(config_).ok());
  EXPECT_FALSE(Callers(**access).Decide(call).ok());
}

TEST_F(AccessReloadTest, WhoListensOnTcpIsShared) {
  const auto is_shared = [](const DaemonConfig& config) {
    return Access::Prepare(
               config, [](const std::string&) {}, [](const std::string&) {})
        .value()
        ->shared();
  };
  const TestDirectory place(TestDirectory::Place::kShort);  // of mode 0700
  EXPECT_TRUE(is_shared(config_));
  config_.listen = {"unix:" + place.path() + "/s", "127.0.0.1:0"};
  EXPECT_TRUE(is_shared(config_));
  config_.listen = {"unix:" + place.path() + "/s"};
  EXPECT_FALSE(is_shared(config_));
}

TEST_F(AccessReloadTest, TlsFilesAreThoseOfTheLastConfiguration) {
  const auto access = Access::Prepare(
      config_, [](const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(access.ok()) << access.status();
  const absl::Time before = (*access)->tls()->Current()->expires;
  const TestCertificate other = TestAuthority().Issue("server", "DNS:localhost", /*days=*/90);
  config_.tls_certificate = Write("other.pem", other.certificate);
  config_.tls_key = Write("other.key", other.key);
  ASSERT_TRUE((*access)->Reload(config_).ok());
  EXPECT_GT((*access)->tls()->Current()->expires, before + absl::Hours(24));
  config_.tls_key = Write("wrong.key", "no key");
  EXPECT_FALSE((*access)->Reload(config_).ok());
}

TEST_F(AccessReloadTest, AnAdministratorWithoutAnAccountIsNamedAndNothingIsTakenOver) {
  const auto prepare = [this] {
    return Access::Prepare(
        config_, [](const std::string&) {}, [](const std::string&) {});
  };
  config_.administrators = {"man", "no-such-user-here"};
  const absl::Status unknown = prepare().status();
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("administrators: no-such-user-here: "));
  config_.administrators = {"man"};
  const auto access = prepare();
  ASSERT_TRUE(access.ok()) << access.status();
  config_.administrators = {"bin", "no-such-user-here"};
  EXPECT_TRUE(absl::IsNotFound((*access)->Reload(config_)));
  EXPECT_TRUE(Administers(**access, "man"));
  EXPECT_FALSE(Administers(**access, "bin"));
}

}  // namespace
}  // namespace megatrain
