#include "server/transport/connection_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/thread_name.h"

namespace megatrain {
namespace {

// Those that connect while others are being accepted; the system may have a lower bound.
constexpr int kBacklog = 4096;
// Without a descriptor even to turn a connection away: until the next attempt.
constexpr int kRetryMilliseconds = 100;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SetPort(int port, sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

bool IsLoopback6(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

int64_t FilesMax() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT64_MAX;
  return limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
}

// Compares addresses, but not ports.
bool SameHost(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET6) {
    const auto& x = reinterpret_cast<const sockaddr_in6&>(a);
    const auto& y = reinterpret_cast<const sockaddr_in6&>(b);
    return IN6_ARE_ADDR_EQUAL(&x.sin6_addr, &y.sin6_addr) && x.sin6_scope_id == y.sin6_scope_id;
  }
  return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
}

}  // namespace

int64_t ConnectionListener::DescriptorsKeptForFiles(int64_t files_max) {
  // A stream reads a file, a checkpoint writes some, the store has three; beyond a quarter they
  // would leave too little for connections.
  return std::min<int64_t>(512, files_max / 4);
}

absl::Status ConnectionListener::Cannot(const std::string& why) const {
  return absl::InvalidArgumentError(
      absl::StrCat("listen: ", address_, ": cannot listen there: ", why));
}

absl::Status ConnectionListener::CannotNow(int error) const {
  const absl::Status status = Cannot(std::strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
    case ENAMETOOLONG:
    case ENOTDIR:
      return status;
    default:  // EADDRNOTAVAIL: an interface that is not up yet; EADDRINUSE: who has it may go
      return absl::UnavailableError(status.message());
  }
}

absl::StatusOr<std::unique_ptr<ConnectionListener>> ConnectionListener::Listen(
    const std::string& address) {
  std::unique_ptr<ConnectionListener> listener(new ConnectionListener(address));
  listener->stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->stop_fd_ < 0) return listener->CannotNow(errno);
  absl::Status status;
  if (absl::StartsWith(address, "unix:")) {
    status = listener->ListenUnix(address.substr(5));
  } else if (const size_t colon = address.rfind(':'); colon != std::string::npos) {
    std::string host = address.substr(0, colon);
    if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
      host = host.substr(1, host.size() - 2);
    }
    status = listener->ListenTcp(host, address.substr(colon + 1));
    if (status.ok()) {
      listener->address_ =
          absl::StrCat(address.substr(0, colon), ":", PortOf(listener->listening_.front()));
    }
  } else {
    status = listener->Cannot("expects unix:/PATH or HOST:PORT");
  }
  if (!status.ok()) return status;
  return listener;
}

absl::Status ConnectionListener::ListenUnix(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return CannotNow(ENAMETOOLONG);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotNow(errno);
  listening_.push_back(fd);
  // The mode of a socket that is not bound yet is what the bound one begins with: only this user
  // may connect, whatever the umask.
  if (fchmod(fd, 0600) != 0 ||
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return CannotNow(errno);
  }
  path_ = path;
  return listen(fd, kBacklog) == 0 ? absl::OkStatus() : CannotNow(errno);
}

absl::Status ConnectionListener::ListenTcp(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    const absl::Status status = Cannot(gai_strerror(error));
    // A name that is not known may be one that the network does not tell yet.
    return error == EAI_SERVICE ? status : absl::UnavailableError(status.message());
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  int chosen = 0, passed_over = 0;
  for (addrinfo* each = found; each != nullptr; each = each->ai_next) {
    bool again = false;  // as where two lines of /etc/hosts have the name
    for (addrinfo* before = found; before != each; before = before->ai_next) {
      again |= SameHost(*before->ai_addr, *each->ai_addr);
    }
    if (again) continue;
    const int fd = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0 && errno == EAFNOSUPPORT) continue;  // a machine without IPv6
    if (fd < 0) return CannotNow(errno);
    listening_.push_back(fd);
    const int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // connections inherit it
    // "::" is IPv4 too; a name has its IPv4 addresses beside.
    if (each->ai_family == AF_INET6) {
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, host == "::" ? &off : &on, sizeof(on));
    }
    if (chosen != 0) SetPort(chosen, each->ai_addr);
    if (bind(fd, each->ai_addr, each->ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
      const int error = errno;
      // A machine may know "::1 localhost" and have IPv6 turned off.
      if (error == EADDRNOTAVAIL && IsLoopback6(*each->ai_addr)) {
        close(fd);
        listening_.pop_back();
        passed_over = error;
        continue;
      }
      return CannotNow(error);
    }
    chosen = PortOf(fd);
  }
  if (!listening_.empty()) return absl::OkStatus();
  return passed_over != 0 ? CannotNow(passed_over) : Cannot("the machine has no such address");
}

ConnectionListener::~ConnectionListener() {
  if (thread_.joinable()) {
    eventfd_write(stop_fd_, 1);
    thread_.join();
  }
  // Once the socket does not listen, the name may be that of another daemon's.
  if (!path_.empty()) unlink(path_.c_str());
  for (const int fd : listening_) close(fd);
  if (stop_fd_ >= 0) close(stop_fd_);
}

void ConnectionListener::Accept(Take take, std::function<void()> turned_away) {
  take_ = std::move(take);
  turned_away_ = std::move(turned_away);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionListener::Run() {
  NameThisThread("listener");
  const int64_t files_max = FilesMax();
  const int64_t connections_end = files_max - DescriptorsKeptForFiles(files_max);
  std::vector<pollfd> polled = {{stop_fd_, POLLIN, 0}};
  for (const int fd : listening_) polled.push_back({fd, POLLIN, 0});
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const int fd = accept4(polled[i].fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        const bool none_left =
            errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        // The connection stays in the queue, where poll would find it at once.
        if (none_left) poll(polled.data(), 1, kRetryMilliseconds);
        continue;
      }
      // The system gives the lowest number that is free, so that it tells how many are in use.
      if (turned_away_ && fd >= connections_end) {
        close(fd);
        turned_away_();
        continue;
      }
      take_(fd);
    }
  }
}

}  // namespace megatrain
