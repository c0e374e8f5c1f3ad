// The companion socket and its client, over real sockets, as other users where the test may be
// them.
#include "server/transport/peer_credential_server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/connection/call_token.h"
#include "client/connection/local_token.h"
#include "client/connection/server_address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class PeerCredentialServerTest : public testing::Test {
 protected:
  void SetUp() override { Start(); }
  void TearDown() override { server_.reset(); }
  // A daemon's end and new beginning.
  void Start() {
    server_.reset();
    tokens_ = LocalTokens::Create().value();
    auto server = ServePeerCredentials(path_ + kPeerCredentialSuffix, &accounts_, tokens_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  int Connect() {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (path_ + kPeerCredentialSuffix).c_str());
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  AccountCache accounts_;
  const TestDirectory own_{TestDirectory::Place::kShort};
  const std::string directory_ = own_.path(), path_ = directory_ + "/m.sock";
  std::unique_ptr<LocalTokens> tokens_;
  std::unique_ptr<ConnectionListener> server_;
};

TEST_F(PeerCredentialServerTest, WhoConnectsGetsATokenForItsUid) {
  if (!FindAccount(geteuid()).ok()) GTEST_SKIP() << "this user has no account";
  const absl::StatusOr<client::LocalToken> token = client::FetchLocalToken(path_);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(tokens_->Verify(token->token).value(), geteuid());
  EXPECT_EQ(token->lifetime, absl::Seconds(LocalTokens::kLifetime.count()));
}

// Its connections last for one answer, so that they may have the descriptors that are kept for
// files.
TEST_F(PeerCredentialServerTest, AnswersWhileConnectionsHaveAllDescriptorsOfTheirs) {
  if (!FindAccount(geteuid()).ok()) GTEST_SKIP() << "this user has no account";
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto files_max = static_cast<int64_t>(limit.rlim_cur);
  const int64_t end = files_max - ConnectionListener::DescriptorsKeptForFiles(files_max);
  const int one = Connect();
  std::vector<int> files;
  for (int fd = 0; fd < end;) files.push_back(fd = dup(one));
  const absl::StatusOr<client::LocalToken> token = client::FetchLocalToken(path_);
  for (const int fd : files) close(fd);
  close(one);
  EXPECT_TRUE(token.ok()) << token.status();
}

// What a process of user `uid` is told.
std::string AskAs(uid_t uid, const std::string& path, const std::string& answer_file) {
  const pid_t child = fork();
  if (child == 0) {
    const int out = open(answer_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (setgid(uid) != 0 || setuid(uid) != 0) _exit(1);
    const absl::StatusOr<client::LocalToken> token = client::FetchLocalToken(path);
    const std::string text =
        token.ok() ? token->token : "error " + std::string(token.status().message());
    _exit(write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::ifstream file(answer_file);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_F(PeerCredentialServerTest, AnotherUserGetsItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const absl::StatusOr<Account> nobody = FindAccount("nobody");
  if (!nobody.ok()) GTEST_SKIP() << nobody.status();
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  ASSERT_EQ(chmod((path_ + kPeerCredentialSuffix).c_str(), 0666), 0);
  const std::string token = AskAs(nobody->uid, path_, directory_ + "/answer");
  EXPECT_EQ(tokens_->Verify(token).value(), nobody->uid) << token;
  EXPECT_THAT(AskAs(3999999999, path_, directory_ + "/answer"),
              HasSubstr("error this machine has no account with the number 3999999999"));
}

TEST_F(PeerCredentialServerTest, ItIsClosedToOthersUntilItIsShared) {
  struct stat info = {};
  ASSERT_EQ(stat((path_ + kPeerCredentialSuffix).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(PeerCredentialServerTest, PeersThatAreSlowOrGoneHoldNobodyUp) {
  std::vector<int> peers;
  for (int i = 0; i < 300; ++i) {
    peers.push_back(Connect());
    if (i % 3 == 1) (void)!send(peers.back(), "noise", 5, MSG_NOSIGNAL);
    if (i % 3 == 2) {
      close(peers.back());
      peers.pop_back();
    }
  }
  EXPECT_TRUE(client::FetchLocalToken(path_).ok());
  for (const int fd : peers) close(fd);
}

TEST_F(PeerCredentialServerTest, ItsEndTakesTheSocketAway) {
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_ + kPeerCredentialSuffix));
  EXPECT_TRUE(absl::IsNotFound(client::FetchLocalToken(path_).status()));
}

TEST_F(PeerCredentialServerTest, WhatIsNoTokenIsRefused) {
  server_.reset();
  const std::string path = path_ + kPeerCredentialSuffix;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 8), 0);
  const std::string answers[] = {"", "nonsense", "[]", "{\"token\": 1}", std::string(100000, 'x')};
  std::thread peer([&] {
    for (const std::string& answer : answers) {
      const int connection = accept(fd, nullptr, nullptr);
      (void)!send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(connection);
    }
  });
  for (size_t i = 0; i < std::size(answers); ++i) {
    EXPECT_TRUE(absl::IsUnavailable(client::FetchLocalToken(path_).status())) << i;
  }
  peer.join();
  close(fd);
}

// Each byte comes soon after the one before.
TEST_F(PeerCredentialServerTest, AnAnswerThatTricklesIsNotWaitedFor) {
  server_.reset();
  const std::string path = path_ + kPeerCredentialSuffix;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 8), 0);
  std::thread peer([&] {
    const int connection = accept(fd, nullptr, nullptr);
    while (send(connection, " ", 1, MSG_NOSIGNAL) == 1) usleep(1000);
    close(connection);
  });
  const absl::Status status = client::FetchLocalToken(path_, absl::Milliseconds(100)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("timed out"));
  peer.join();
  close(fd);
}

TEST_F(PeerCredentialServerTest, AClientsTokenOutlivesTheDaemon) {
  client::CallToken token(*client::ParseServerAddress("unix:" + path_), "mt_users_own");
  const std::string first = token.Get();
  EXPECT_TRUE(tokens_->Verify(first).ok());
  EXPECT_EQ(token.Get(), first) << "one is enough for minutes";
  Start();
  EXPECT_EQ(token.Get(), first) << "nobody has told it";
  EXPECT_TRUE(token.Renew(first));
  EXPECT_TRUE(tokens_->Verify(token.Get()).ok());
  EXPECT_TRUE(token.Renew(first)) << "another call has renewed it already";
  server_.reset();
  EXPECT_FALSE(token.Renew(token.Get())) << "there is no other";
}

}  // namespace
}  // namespace megatrain
