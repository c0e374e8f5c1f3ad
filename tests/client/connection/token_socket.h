// The companion socket of a daemon, from which clients fetch their tokens.
#ifndef MEGATRAIN_TESTS_CLIENT_CONNECTION_TOKEN_SOCKET_H_
#define MEGATRAIN_TESTS_CLIENT_CONNECTION_TOKEN_SOCKET_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain::client {

// Gives every caller another token, t1, t2 and so on, as the daemon's does after a restart.
inline std::string NumberedToken(int number) {
  return absl::StrCat("{\"token\": \"t", number, "\", \"lifetime_seconds\": 300}\n");
}

class TokenSocket {
 public:
  // `answer` gives what the caller of that number, from 1, is sent. It is called on a thread of the
  // socket.
  explicit TokenSocket(const std::string& path,
                       std::function<std::string(int number)> answer = NumberedToken)
      : answer_(std::move(answer)), fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~TokenSocket() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  TokenSocket(const TokenSocket&) = delete;
  TokenSocket& operator=(const TokenSocket&) = delete;

 private:
  void Serve() {
    for (int number = 1;; ++number) {
      const int caller = accept(fd_, nullptr, nullptr);
      if (caller < 0) return;
      const std::string answer = answer_(number);
      EXPECT_EQ(write(caller, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      close(caller);
    }
  }

  const std::function<std::string(int number)> answer_;
  const int fd_;
  std::thread thread_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_TESTS_CLIENT_CONNECTION_TOKEN_SOCKET_H_
