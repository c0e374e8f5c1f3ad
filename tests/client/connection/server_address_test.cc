#include "client/connection/server_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/test_directory.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

TEST(ServerAddressTest, UnixSockets) {
  const auto address = ParseServerAddress("unix:/run/m/../m.sock");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_TRUE(address->local());
  EXPECT_EQ(address->socket_path, "/run/m.sock");
  EXPECT_EQ(address->text, "unix:/run/m.sock");
  EXPECT_EQ(ParseServerAddress("unix:///run/m.sock")->socket_path, "/run/m.sock");
  std::filesystem::current_path("/tmp");  // the test's own may be too long for a socket
  EXPECT_EQ(ParseServerAddress("unix:m.sock")->socket_path, "/tmp/m.sock");
  // The longest path that a socket can have, and one that is longer.
  EXPECT_TRUE(ParseServerAddress("unix:/" + std::string(106, 'a')).ok());
  EXPECT_FALSE(ParseServerAddress("unix:/" + std::string(107, 'a')).ok());
}

TEST(ServerAddressTest, HostsAndPorts) {
  for (const char* const text : {"node7:9463", "10.0.0.1:1", "[::1]:65535"}) {
    const auto address = ParseServerAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_FALSE(address->local());
    EXPECT_EQ(address->text, text);
  }
}

TEST(ServerAddressTest, WhatIsNeitherIsRefusedWithWhatIsExpected) {
  for (const std::string& text :
       {std::string(""), std::string("unix:"), std::string("/run/m.sock"), std::string("node7"),
        std::string(":1"), std::string("node7:0"), std::string("node7:65536"),
        std::string("node7:x"), std::string("::1:5"), std::string("[::1:5"), std::string("::1]:5"),
        std::string("/run/m.sock:1"), std::string("node7: 9463"), std::string("node7:+9463"),
        std::string("node7:"), "unix:/" + std::string(200, 'a')}) {
    const auto address = ParseServerAddress(text);
    EXPECT_TRUE(absl::IsInvalidArgument(address.status())) << text;
    EXPECT_THAT(address.status().message(),
                ::testing::AnyOf(HasSubstr("expects unix:PATH or HOST:PORT"),
                                 HasSubstr("the system allows")))
        << text;
  }
}

TEST(ServerAddressTest, SaysWhyNobodyAnswers) {
  const auto address = ParseServerAddress("unix:/nonexistent/m.sock");
  const absl::Status status = WhyUnreachable(*address, absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(status.message(), HasSubstr("there is no such socket"));
  EXPECT_THAT(status.message(), HasSubstr("megatraind serve"));
}

TEST(ServerAddressTest, ASocketThatADaemonHasLeftBehindIsNotOneThatAnswers) {
  const TestDirectory directory(TestDirectory::Place::kShort);
  const auto address = ParseServerAddress("unix:" + (directory / "m.sock"));
  sockaddr_un place = {};
  place.sun_family = AF_UNIX;
  address->socket_path.copy(place.sun_path, sizeof(place.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  const absl::Status otherwise = absl::InternalError("something else");
  EXPECT_EQ(WhyUnreachable(*address, otherwise), otherwise) << "somebody listens";
  close(listener);
  const absl::Status status = WhyUnreachable(*address, otherwise);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("nobody listens on this socket"));
}

TEST(ServerAddressTest, WhoMayNotConnectIsToldSo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const TestDirectory directory(TestDirectory::Place::kShort);  // of mode 0700
  const auto address = ParseServerAddress("unix:" + (directory / "m.sock"));
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    _exit(absl::IsPermissionDenied(WhyUnreachable(*address, absl::OkStatus())) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ServerAddressTest, SaysWhatToDoWhenTlsFails) {
  const struct {
    const char* words;
    bool has_certificate;
    const char* advice;
  } cases[] = {
      {"name not known", false, "is the daemon running?"},
      {"Connection refused", true, "is the daemon running?"},
      {"Ssl handshake failed: certificate verify failed", true, "--ca F` or MEGATRAIN_CA"},
      {"Peer name far is not in peer certificate", true, "is for other names"},
      {"Hostname Verification Check failed", true, "is for other names"},
      {"SSL routines::wrong version number", false, "does not speak TLS"},
      {"error:100000f7:WRONG_VERSION_NUMBER", true, "does not speak TLS"},
      {"packet length too long", true, "does not speak TLS"},
      {"DNS resolution failed", true, "is the daemon running?"},
      {"connect: No route to host", true, "is the daemon running?"},
      {"Socket closed", true, "may have refused the client certificate"},
      {"Socket closed", false, "is the daemon running?"},
  };
  for (const auto& [words, has_certificate, advice] : cases) {
    const absl::Status status = WhyTlsFails("node7:9463", words, has_certificate);
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(status.message(), HasSubstr("no answer from node7:9463: ")) << words;
    EXPECT_THAT(status.message(), HasSubstr(advice)) << words;
  }
}

}  // namespace
}  // namespace megatrain::client
