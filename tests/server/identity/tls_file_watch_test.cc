#include "server/identity/tls_file_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/identity/test_certificates.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TlsFileWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    Renew();
    Write("ca.pem", authority_.certificate());
    TlsFileWatch::Options options;
    options.log = [this](const std::string& line) { log_.push_back(line); };
    options.now = [this] { return now_; };
    auto watch = TlsFileWatch::Open(
        {directory_ + "/server.pem", directory_ + "/server.key", directory_ + "/ca.pem"}, options);
    ASSERT_TRUE(watch.ok()) << watch.status();
    watch_ = *std::move(watch);
  }

  // As programs that renew certificates do: another file in its place.
  void Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path + ".new") << text;
    ASSERT_EQ(chmod((path + ".new").c_str(), mode), 0);
    std::filesystem::rename(path + ".new", path);
  }
  TestCertificate Renew(int days = 30) {
    const TestCertificate server = authority_.Issue("server", "DNS:localhost", days);
    Write("server.pem", server.certificate);
    Write("server.key", server.key);
    return server;
  }
  std::shared_ptr<const TlsFiles> Look() {
    now_ += TlsFileWatch::kLookInterval;
    return watch_->Current();
  }

  const TestAuthority authority_;
  absl::Time now_ = absl::Now();
  const TestDirectory own_;
  const std::string directory_ = own_.path();
  std::vector<std::string> log_;
  std::unique_ptr<TlsFileWatch> watch_;
};

TEST_F(TlsFileWatchTest, WhatStaysIsNotReadAgain) {
  const auto first = watch_->Current();
  EXPECT_EQ(Look(), first);
  EXPECT_EQ(Look(), first);
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_TRUE(watch_->asks_for_client_certificates());
  EXPECT_GT(first->expires, now_ + absl::Hours(24 * 29));
  EXPECT_LT(first->expires, now_ + absl::Hours(24 * 31));
}

TEST_F(TlsFileWatchTest, WhatIsRenewedIsReadWithinASecond) {
  const auto first = watch_->Current();
  const TestCertificate renewed = Renew(/*days=*/90);
  EXPECT_EQ(watch_->Current(), first) << "looked at no more often";
  const auto second = Look();
  EXPECT_EQ(second->certificate, renewed.certificate);
  EXPECT_EQ(second->key, renewed.key);
  EXPECT_GT(second->expires, first->expires);
  EXPECT_NE(first->certificate, renewed.certificate) << "who has it keeps it";
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr("read again"), HasSubstr("good until"))));
  // Of clients too.
  const TestAuthority other("another");
  Write("ca.pem", authority_.certificate() + other.certificate());
  EXPECT_THAT(Look()->client_ca, HasSubstr(other.certificate()));
  // A clock that was set back.
  Renew();
  now_ -= absl::Hours(1);
  EXPECT_NE(watch_->Current()->certificate, renewed.certificate);
}

TEST_F(TlsFileWatchTest, FilesThatAreNotGoodChangeNothing) {
  const auto first = watch_->Current();
  std::filesystem::remove(directory_ + "/server.key");
  EXPECT_EQ(Look(), first);
  EXPECT_THAT(log_, IsEmpty()) << "it may be about to be replaced";
  EXPECT_EQ(Look(), first);
  EXPECT_EQ(Look(), first);
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr("tls.key"), HasSubstr("server.key"),
                                      HasSubstr("the files read before"))));
  log_.clear();
  const TestCertificate renewed = Renew();
  Write("server.key", renewed.key, 0644);
  Look();
  EXPECT_EQ(Look(), first);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("chmod 0600")));
  log_.clear();
  // Mended in place: the look of the file may be the same.
  ASSERT_EQ(chmod((directory_ + "/server.key").c_str(), 0600), 0);
  EXPECT_EQ(Look()->certificate, renewed.certificate);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("read again")));
}

TEST_F(TlsFileWatchTest, ARenewalCaughtHalfwayIsNotTold) {
  const auto first = watch_->Current();
  const TestCertificate renewed = authority_.Issue("server", "DNS:localhost");
  Write("server.pem", renewed.certificate);
  EXPECT_EQ(Look(), first);
  Write("server.key", renewed.key);
  EXPECT_EQ(Look()->certificate, renewed.certificate);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("read again")));
}

TEST_F(TlsFileWatchTest, AReloadTakesOtherFilesAtOnceOrNone) {
  const auto first = watch_->Current();
  const TlsPaths others = {directory_ + "/other.pem", directory_ + "/other.key", ""};
  EXPECT_FALSE(watch_->Reload(others).ok());
  EXPECT_EQ(Look(), first);
  const TestCertificate other = authority_.Issue("other", "DNS:localhost");
  Write("other.pem", other.certificate);
  EXPECT_FALSE(watch_->Reload(others).ok()) << "its key is not there";
  EXPECT_EQ(Look(), first);
  Write("other.key", other.key);
  ASSERT_TRUE(watch_->Reload(others).ok());
  EXPECT_EQ(watch_->Current()->certificate, other.certificate);
  Renew();
  EXPECT_EQ(Look()->certificate, other.certificate) << "those before do not matter any more";
}

TEST_F(TlsFileWatchTest, AReloadThatFailedLeavesTheFilesToLaterLooks) {
  const auto first = watch_->Current();
  Write("server.key", "nothing");
  const TlsPaths same = {directory_ + "/server.pem", directory_ + "/server.key",
                         directory_ + "/ca.pem"};
  EXPECT_FALSE(watch_->Reload(same).ok());
  EXPECT_EQ(Look(), first);
  EXPECT_EQ(Look(), first);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("the files read before")));
}

TEST_F(TlsFileWatchTest, TheFirstReadingMustBeGood) {
  Write("server.key", "nothing");
  const absl::Status status =
      TlsFileWatch::Open({directory_ + "/server.pem", directory_ + "/server.key", ""}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tls.key"));
}

TEST_F(TlsFileWatchTest, ACertificateOutOfItsTimeIsWarnedOfWheneverItIsRead) {
  Renew(/*days=*/-1);
  Look();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("expired on"), HasSubstr("read again")));
  std::vector<std::string> first;
  TlsFileWatch::Options options;
  options.log = [&first](const std::string& line) { first.push_back(line); };
  ASSERT_TRUE(
      TlsFileWatch::Open({directory_ + "/server.pem", directory_ + "/server.key", ""}, options)
          .ok());
  EXPECT_THAT(first, ElementsAre(HasSubstr("expired on")));
}

TEST_F(TlsFileWatchTest, AReloadEndsTheTroubleWithTheFilesBefore) {
  Write("server.key", "nothing");
  Look();
  Look();
  EXPECT_THAT(log_, ElementsAre(HasSubstr("the files read before")));
  log_.clear();
  const TestCertificate renewed = Renew();
  ASSERT_TRUE(
      watch_
          ->Reload({directory_ + "/server.pem", directory_ + "/server.key", directory_ + "/ca.pem"})
          .ok());
  const auto reloaded = watch_->Current();
  EXPECT_EQ(reloaded->certificate, renewed.certificate);
  EXPECT_EQ(Look(), reloaded) << "there is nothing to be read again";
  EXPECT_THAT(log_, IsEmpty());
}

}  // namespace
}  // namespace megatrain
