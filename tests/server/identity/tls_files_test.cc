#include "server/identity/tls_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TlsFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    const TestCertificate server = authority_.Issue("server", "DNS:localhost");
    paths_.certificate = Write("server.pem", server.certificate);
    paths_.key = Write("server.key", server.key);
    paths_.client_ca = Write("ca.pem", authority_.certificate());
  }

  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string Error(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = ReadTlsFiles(paths_, absl::Now()).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const TestAuthority authority_;
  const TestDirectory own_;
  const std::string directory_ = own_.path();
  TlsPaths paths_;
};

TEST_F(TlsFilesTest, GoodFilesAreRead) {
  const absl::StatusOr<TlsFiles> files = ReadTlsFiles(paths_, absl::Now());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->certificate, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_EQ(files->client_ca, authority_.certificate());
  EXPECT_THAT(files->warnings, IsEmpty());
  paths_.client_ca = "";
  EXPECT_EQ(ReadTlsFiles(paths_, absl::Now())->client_ca, "");
}

TEST_F(TlsFilesTest, MissingFilesAreNamed) {
  paths_.client_ca = directory_ + "/none";
  // They may come.
  EXPECT_THAT(Error(absl::StatusCode::kNotFound),
              AllOf(HasSubstr("tls.client_ca: "), HasSubstr("/none")));
  paths_.key = directory_ + "/none";
  EXPECT_THAT(Error(absl::StatusCode::kNotFound), HasSubstr("tls.key: "));
  paths_.certificate = directory_;
  EXPECT_THAT(Error(), HasSubstr("tls.certificate: "));
}

TEST_F(TlsFilesTest, WhatIsNotPemIsRefused) {
  const std::string noise = Write("noise", "-----BEGIN CERTIFICATE-----\nnoise\n");
  const TlsPaths good = paths_;
  paths_.certificate = noise;
  EXPECT_THAT(Error(), HasSubstr("tls.certificate: " + noise + ": holds no PEM certificate"));
  paths_ = good;
  paths_.key = noise;
  EXPECT_THAT(Error(), HasSubstr("tls.key: " + noise + ": holds no PEM private key"));
  paths_ = good;
  paths_.client_ca = noise;
  EXPECT_THAT(Error(), HasSubstr("tls.client_ca: " + noise + ": holds no PEM certificate"));
  paths_ = good;
  paths_.key = Write("locked", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n");
  EXPECT_THAT(Error(), HasSubstr("is encrypted"));
}

TEST_F(TlsFilesTest, AKeyMustBeTheCertificatesAndSecret) {
  const std::string key = paths_.key;
  paths_.key = Write("other.key", authority_.Issue("other").key);
  EXPECT_THAT(Error(), HasSubstr("is not the key of the certificate in " + paths_.certificate));
  paths_.key = key;
  for (const mode_t mode : {0604, 0620, 0644}) {
    ASSERT_EQ(chmod(key.c_str(), mode), 0);
    EXPECT_THAT(Error(), AllOf(HasSubstr("tls.key: " + key), HasSubstr("chmod 0600")));
  }
}

TEST_F(TlsFilesTest, ARootsKeyMayBeForTheEyesOfAGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string key = paths_.key;
  ASSERT_EQ(chmod(key.c_str(), 0640), 0);
  EXPECT_TRUE(ReadTlsFiles(paths_, absl::Now()).ok());
  ASSERT_EQ(chown(key.c_str(), 2, 2), 0);
  EXPECT_THAT(Error(), HasSubstr("chmod 0600"));
}

TEST_F(TlsFilesTest, CertificatesOutOfTheirTimeAreWarnedOf) {
  const TestCertificate expired = authority_.Issue("server", "DNS:localhost", -1);
  paths_.certificate = Write("expired.pem", expired.certificate);
  paths_.key = Write("expired.key", expired.key);
  EXPECT_THAT(ReadTlsFiles(paths_, absl::Now())->warnings,
              ElementsAre(AllOf(HasSubstr("tls.certificate"), HasSubstr("expired on 20"))));
  EXPECT_THAT(ReadTlsFiles(paths_, absl::Now() - absl::Hours(24 * 10))->warnings,
              ElementsAre(HasSubstr("valid only from"), HasSubstr("tls.client_ca")));
}

TEST_F(TlsFilesTest, EveryCertificateOfAChainIsLookedAtAndTheFirstIsTheServers) {
  const TestCertificate server = authority_.Issue("server", "DNS:localhost");
  const TestCertificate expired = authority_.Issue("between", "", -1);
  paths_.certificate = Write("chain.pem", server.certificate + expired.certificate);
  paths_.key = Write("chain.key", server.key);
  const absl::StatusOr<TlsFiles> files = ReadTlsFiles(paths_, absl::Now());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->warnings, ElementsAre(HasSubstr("expired on 20")));
  EXPECT_GT(files->expires, absl::Now());
}

TEST_F(TlsFilesTest, AFileThatIsTooLongIsNotRead) {
  paths_.client_ca = Write("long.pem", std::string((size_t{1} << 20) + 1, 'x'));
  EXPECT_THAT(Error(absl::StatusCode::kOutOfRange),
              AllOf(HasSubstr("tls.client_ca: "), HasSubstr("long.pem")));
  paths_.client_ca = Write("long.pem", std::string(size_t{1} << 20, 'x'));
  EXPECT_THAT(Error(), HasSubstr("holds no PEM certificate"));
}

}  // namespace
}  // namespace megatrain
