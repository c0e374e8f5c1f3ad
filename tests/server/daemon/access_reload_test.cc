// A reload that takes away a file that listeners look at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>

#include "server/daemon/access.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

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

}  // namespace
}  // namespace megatrain
