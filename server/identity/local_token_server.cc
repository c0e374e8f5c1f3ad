#include "server/identity/local_token_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/thread_name.h"

namespace megatrain {
namespace {

// Connections that wait for the thread; more are refused by the system.
constexpr int kWaitingMax = 128;
// Between attempts to accept when the process has no file descriptor left.
constexpr int kNoDescriptorMilliseconds = 100;

// A socket that only this user may connect to, whatever the umask.
absl::StatusOr<int> Listen(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("unix:", path, ": is ", path.size(),
                                                   " bytes long; the system allows sockets ",
                                                   sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return FileError("open a socket for", path, errno);
  // The mode of a socket that is not bound yet is what the bound one begins with.
  if (fchmod(fd, 0600) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, kWaitingMax) != 0) {
    const absl::Status status = FileError("listen on", path, errno);
    close(fd);
    return status;
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTokenServer>> LocalTokenServer::Start(
    const std::string& path, const AccountCache* accounts, LocalTokens* tokens) {
  const absl::StatusOr<int> listener = Listen(path);
  if (!listener.ok()) return listener.status();
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) {
    const absl::Status status = FileError("make an event for", path, errno);
    close(*listener);
    unlink(path.c_str());
    return status;
  }
  std::unique_ptr<LocalTokenServer> server(
      new LocalTokenServer(path, *listener, stop, accounts, tokens));
  server->thread_ = std::thread([raw = server.get()] { raw->Serve(); });
  return server;
}

LocalTokenServer::LocalTokenServer(std::string path, int listener, int stop,
                                   const AccountCache* accounts, LocalTokens* tokens)
    : path_(std::move(path)),
      listener_(listener),
      stop_(stop),
      accounts_(accounts),
      tokens_(tokens) {}

LocalTokenServer::~LocalTokenServer() {
  const uint64_t one = 1;
  // Cannot fail: the counter is 0.
  if (write(stop_, &one, sizeof(one)) == sizeof(one) && thread_.joinable()) thread_.join();
  unlink(path_.c_str());
  close(listener_);
  close(stop_);
}

void LocalTokenServer::Serve() {
  NameThisThread("local tokens");
  pollfd events[] = {{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
  while (true) {
    if (poll(events, 2, -1) < 0 && errno != EINTR) return;
    if ((events[0].revents & POLLIN) != 0) return;
    if ((events[1].revents & POLLIN) == 0) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      Answer(connection);
      close(connection);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // Its caller waits on; without a pause this would be a busy loop.
      poll(events, 1, kNoDescriptorMilliseconds);
    }
  }
}

void LocalTokenServer::Answer(int connection) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  nlohmann::ordered_json answer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    answer["error"] = "the system does not say who calls";
  } else if (const absl::StatusOr<Account> account = accounts_->Find(peer.uid); !account.ok()) {
    answer["error"] = std::string(account.status().message());
  } else {
    answer["token"] = tokens_->Mint(peer.uid);
    answer["lifetime_seconds"] = LocalTokens::kLifetime.count();
  }
  const std::string line =
      answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // A peer that has gone by now does not matter.
  (void)!send(connection, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace megatrain
