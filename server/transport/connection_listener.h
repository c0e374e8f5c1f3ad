// ConnectionListener accepts the connections of an address on a thread of its own, until it is
// destroyed. gRPC's own listener (1.51) stops accepting for ever at the first connection for which
// the process has no file descriptor left. This one closes connections that would take the last
// descriptors, and goes on.
//
// Thread safety: one thread at a time.
// Invariants: with a `turned_away` (Accept), connections that stay open after `take` leave
// DescriptorsKeptForFiles() of the process's descriptors to its files.
#ifndef MEGATRAIN_SERVER_TRANSPORT_CONNECTION_LISTENER_H_
#define MEGATRAIN_SERVER_TRANSPORT_CONNECTION_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

class ConnectionListener {
 public:
  // Called with a connected, non-blocking socket. The function owns it and must close it.
  using Take = std::function<void(int fd)>;

  // Listens on "unix:/PATH", which must not exist and gets mode 0600, or on "HOST:PORT". HOST may
  // stand for several addresses; an IPv6 address is in brackets, and "[::]" takes IPv4 too. The
  // system chooses the port if it is 0. Connections wait until Accept is called. Returns
  // InvalidArgument if the address can never work, and Unavailable if it does not work now.
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Listen(const std::string& address);
  // Closes the listening sockets and removes a Unix socket from the file system. Waits for a call
  // of `take` or `turned_away` that is under way. Connections that were taken stay open.
  ~ConnectionListener();
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

  // Begins to accept; to be called once. Calls `take`, which must not be null, for each connection,
  // and `turned_away` for each that was closed at once. Both are called on the listener's thread,
  // for one connection at a time, and not after the listener is destroyed. If `turned_away` is
  // null, no connection is closed at once, and `take` must close each before it returns.
  void Accept(Take take, std::function<void()> turned_away = {});

  // Returns the address given to Listen, with the port that the system chose in place of 0.
  const std::string& address() const { return address_; }

  // Returns how many of the `files_max` descriptors of a process connections must leave to files.
  static int64_t DescriptorsKeptForFiles(int64_t files_max);

 private:
  explicit ConnectionListener(std::string address) : address_(std::move(address)) {}
  absl::Status ListenUnix(const std::string& path);
  absl::Status ListenTcp(const std::string& host, const std::string& port);
  absl::Status Cannot(const std::string& why) const;
  absl::Status CannotNow(int error) const;
  void Run();

  std::string address_;
  std::string path_;            // of a Unix socket that is to be removed
  std::vector<int> listening_;  // sockets: a name may stand for several addresses
  int stop_fd_ = -1;            // an eventfd: readable when the thread is to end
  Take take_;
  std::function<void()> turned_away_;
  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_CONNECTION_LISTENER_H_
