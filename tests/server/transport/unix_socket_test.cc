#include "server/transport/unix_socket.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class UnixSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    // The test's own directory has too long a path for a socket.
    std::string pattern = "/tmp/megatrain_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/m.sock";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // A bound socket; the caller closes it.
  int Bind(bool listening) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_TRUE(!listening || listen(fd, 1) == 0);
    return fd;
  }

  std::string directory_, path_;
};

TEST_F(UnixSocketTest, ADirectoryThatOnlyThisUserEntersIsPrivate) {
  EXPECT_EQ(PrepareUnixSocket(path_).value(), SocketAccess::kPrivate);
}

TEST_F(UnixSocketTest, AMissingDirectoryIsMadePrivate) {
  const std::string made = directory_ + "/run";
  EXPECT_EQ(PrepareUnixSocket(made + "/m.sock").value(), SocketAccess::kPrivate);
  struct stat info = {};
  ASSERT_EQ(stat(made.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(UnixSocketTest, DirectoriesThatOthersCanEnterAreShared) {
  for (const mode_t mode : {0701, 0710, 0750, 0755}) {
    ASSERT_EQ(chmod(directory_.c_str(), mode), 0);
    EXPECT_EQ(PrepareUnixSocket(path_).value(), SocketAccess::kShared);
  }
}

TEST_F(UnixSocketTest, DirectoriesThatOthersCanWriteToAreRefused) {
  for (const mode_t mode : {0720, 0702, 0770, 0777, 01777}) {
    ASSERT_EQ(chmod(directory_.c_str(), mode), 0);
    const absl::Status status = PrepareUnixSocket(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("0750"));
  }
}

TEST_F(UnixSocketTest, DirectoriesOfOtherUsersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make one";
  ASSERT_EQ(chown(directory_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(PrepareUnixSocket(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(UnixSocketTest, ASharedSocketIsForItsGroup) {
  const int fd = Bind(true);
  ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  const absl::StatusOr<std::string> group = ShareUnixSocket(path_);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_NE(*group, "");
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0660u);
  close(fd);
}

TEST_F(UnixSocketTest, TheDirectorysGroupHasTheSocket) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another group";
  if (getgrnam("megatrain") != nullptr)
    GTEST_SKIP() << "there is a group megatrain, which goes first";
  ASSERT_EQ(chown(directory_.c_str(), 0, 2), 0);
  const int fd = Bind(true);
  EXPECT_EQ(ShareUnixSocket(path_).value(), getgrgid(2)->gr_name);
  close(fd);
}

TEST_F(UnixSocketTest, ASocketThatNobodyListensOnIsRemoved) {
  close(Bind(true));
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(PrepareUnixSocket(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, ASocketInUseIsLeftAlone) {
  const int fd = Bind(true);
  const absl::Status status = PrepareUnixSocket(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another process"));
  EXPECT_TRUE(std::filesystem::exists(path_));
  close(fd);
}

TEST_F(UnixSocketTest, ASocketWhoseQueueIsFullIsInUse) {
  const int fd = Bind(true);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
  std::vector<int> waiting;
  do {
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  EXPECT_EQ(PrepareUnixSocket(path_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(path_));
  for (const int each : waiting) close(each);
  close(fd);
}

TEST_F(UnixSocketTest, OtherFilesAreLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(PrepareUnixSocket(path_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, PathsThatCannotBeSocketsAreRefused) {
  for (const std::string& path :
       {std::string("m.sock"), std::string(), directory_ + "/" + std::string(200, 'a')}) {
    EXPECT_EQ(PrepareUnixSocket(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
  EXPECT_FALSE(PrepareUnixSocket(directory_ + "/a/b/m.sock").ok());  // parents are not made
  // With the zero byte at its end it has as many bytes as the system allows.
  std::string longest = directory_ + "/";
  longest.resize(sizeof(sockaddr_un::sun_path) - 1, 'a');
  EXPECT_TRUE(PrepareUnixSocket(longest).ok());
  EXPECT_EQ(PrepareUnixSocket(longest + "a").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
