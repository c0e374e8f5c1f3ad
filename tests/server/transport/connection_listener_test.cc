#include "server/transport/connection_listener.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"

namespace megatrain {
namespace {

// Whether names have each of their addresses twice, as with two lines in /etc/hosts.
bool addresses_come_twice = false;

}  // namespace
}  // namespace megatrain

// In place of the C library's, for this process.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Function = int(const char*, const char*, const addrinfo*, addrinfo**);
  auto* const look_up = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const int error = look_up(name, service, hints, found);
  if (error != 0 || !megatrain::addresses_come_twice) return error;
  addrinfo* last = *found;
  while (last->ai_next != nullptr) last = last->ai_next;
  return look_up(name, service, hints, &last->ai_next);
}

namespace megatrain {
namespace {

class ConnectionListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/listener_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/s";
    auto listener = ConnectionListener::Listen("unix:" + path_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Accept(
        [this](int fd) {
          MutexLock lock(&mutex_);
          taken_.push_back(fd);
          changed_.NotifyAll();
        },
        [this] { ++turned_away_; });
  }
  void TearDown() override {
    listener_.reset();
    for (const int fd : taken_) close(fd);
    rmdir(directory_.c_str());
  }

  int Connect() {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  void WaitForTaken(size_t count) {
    MutexLock lock(&mutex_);
    while (taken_.size() < count) ASSERT_TRUE(changed_.WaitFor(&mutex_, 60));
  }
  // Until the other end is closed.
  static void WaitForEnd(int fd) {
    pollfd polled = {fd, POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 60'000), 1);
    char byte = 0;
    EXPECT_LE(read(fd, &byte, 1), 0);
  }

  std::string directory_, path_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<int> taken_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> turned_away_{0};
  std::unique_ptr<ConnectionListener> listener_;
};

TEST_F(ConnectionListenerTest, PassesConnectionsOnAndRemovesItsSocket) {
  const int first = Connect(), second = Connect();
  WaitForTaken(2);
  EXPECT_NE(fcntl(taken_[0], F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(taken_[0], F_GETFD) & FD_CLOEXEC, 0);
  close(first);
  close(second);
  listener_.reset();
  struct stat info = {};
  EXPECT_NE(lstat(path_.c_str(), &info), 0);
}

TEST_F(ConnectionListenerTest, KeepsDescriptorsForFilesAndGoesOn) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto end = static_cast<int>(before.rlim_cur) -
                   static_cast<int>(ConnectionListener::DescriptorsKeptForFiles(
                       static_cast<int64_t>(before.rlim_cur)));
  const int client = Connect();
  WaitForTaken(1);
  // All that connections may have are taken, by this one file.
  std::vector<int> files;
  for (int fd = 0; fd < end;) files.push_back(fd = dup(client));
  const int refused = Connect();
  WaitForEnd(refused);
  for (const int fd : files) close(fd);
  const int accepted = Connect();
  WaitForTaken(2);
  EXPECT_EQ(turned_away_, 1);
  for (const int fd : {client, refused, accepted}) close(fd);
}

TEST_F(ConnectionListenerTest, WhatCannotBeListenedOnIsRefused) {
  for (const std::string& address : {"unix:/tmp/" + std::string(200, 'x'), std::string("127.0.0.1"),
                                     std::string("unix:/dev/null/s")}) {
    EXPECT_EQ(ConnectionListener::Listen(address).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST_F(ConnectionListenerTest, APathMayBeAsLongAsTheSystemAllows) {
  std::string longest = "unix:" + directory_ + "/";
  longest.resize(5 + sizeof(sockaddr_un::sun_path) - 1, 'a');
  const absl::Status listens = ConnectionListener::Listen(longest).status();
  EXPECT_TRUE(listens.ok()) << listens;
  EXPECT_EQ(ConnectionListener::Listen(longest + "a").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ConnectionListenerTest, WhatCannotBeListenedOnYetMayPass) {
  // In use; a directory that is not mounted; an address that no interface has.
  for (const std::string& address :
       {"unix:" + path_, std::string("unix:/no/such/directory/s"), std::string("192.0.2.1:0")}) {
    const absl::Status status = ConnectionListener::Listen(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << address;
    EXPECT_NE(status.message().find(address), std::string::npos) << status;
  }
}

TEST(ConnectionListenerTcpTest, AddressesOfIpv6AreInBracketsAndThatOfAllIsOfIpv4Too) {
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool has_ipv6 =
      probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  close(probe);
  if (!has_ipv6) GTEST_SKIP() << "this machine has no IPv6";
  const auto own = ConnectionListener::Listen("[::1]:0");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*own)->address().rfind("[::1]:", 0), 0u) << (*own)->address();
  const auto all = ConnectionListener::Listen("[::]:0");
  ASSERT_TRUE(all.ok()) << all.status();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi((*all)->address().substr(5))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
}

// A client may try any of the addresses that the name has.
TEST(ConnectionListenerTcpTest, ANameIsListenedOnAtEachOfItsAddressesOnOnePort) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, &hints, &found) != 0) {
    GTEST_SKIP() << "this machine does not know localhost";
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  // The port that is free at the first address may be in use at the next.
  auto listener = ConnectionListener::Listen("localhost:0");
  for (int i = 0; i < 20 && !listener.ok(); ++i) {
    listener = ConnectionListener::Listen("localhost:0");
  }
  if (!listener.ok()) GTEST_SKIP() << "the name is of no use here: " << listener.status();
  int port = 0;
  ASSERT_EQ(sscanf((*listener)->address().c_str(), "localhost:%d", &port), 1);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    // Of port 0: whether the machine has the address at all.
    const int probe = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_here = probe >= 0 && bind(probe, each->ai_addr, each->ai_addrlen) == 0;
    if (probe >= 0) close(probe);
    if (!is_here) continue;
    const int fd = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (each->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(each->ai_addr)->sin6_port =
          htons(static_cast<uint16_t>(port));
    } else {
      reinterpret_cast<sockaddr_in*>(each->ai_addr)->sin_port = htons(static_cast<uint16_t>(port));
    }
    EXPECT_EQ(connect(fd, each->ai_addr, each->ai_addrlen), 0) << each->ai_family;
    close(fd);
  }
}

TEST(ConnectionListenerTcpTest, AnAddressThatANameHasTwiceIsListenedOnOnce) {
  addresses_come_twice = true;
  const absl::Status listens = ConnectionListener::Listen("127.0.0.1:0").status();
  addresses_come_twice = false;
  EXPECT_TRUE(listens.ok()) << listens;
}

TEST(ConnectionListenerTcpTest, SaysWhichPortItHasAndKeepsItToItself) {
  auto listener = ConnectionListener::Listen("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  int port = 0;
  ASSERT_EQ(sscanf((*listener)->address().c_str(), "127.0.0.1:%d", &port), 1);
  EXPECT_GT(port, 0);
  EXPECT_FALSE(ConnectionListener::Listen((*listener)->address()).ok());
  Mutex mutex;
  CondVar changed;
  int taken = -1;
  (*listener)->Accept([&](int fd) {
    MutexLock lock(&mutex);
    taken = fd;
    changed.NotifyAll();
  });
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  {
    MutexLock lock(&mutex);
    while (taken < 0) ASSERT_TRUE(changed.WaitFor(&mutex, 60));
  }
  close(fd);
  close(taken);
}

// The system keeps what the daemon has closed for a minute.
TEST(ConnectionListenerTcpTest, HasItsPortAgainAfterConnectionsThatItClosed) {
  auto listener = ConnectionListener::Listen("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string listening = (*listener)->address();
  (*listener)->Accept([](int fd) { close(fd); });
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(listening.substr(10))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  char byte = 0;
  EXPECT_EQ(read(fd, &byte, 1), 0);
  close(fd);
  listener->reset();
  listener = ConnectionListener::Listen(listening);
  EXPECT_TRUE(listener.ok()) << listener.status();
}

TEST(ConnectionListenerFilesTest, LeavesMostForConnections) {
  EXPECT_EQ(ConnectionListener::DescriptorsKeptForFiles(1024), 256);
  EXPECT_EQ(ConnectionListener::DescriptorsKeptForFiles(20000), 512);
}

}  // namespace
}  // namespace megatrain
