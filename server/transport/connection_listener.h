// Accepts connections for the gRPC server. gRPC's own listener gives up for good at the first
// connection for which the process has no file descriptor left (gRPC 1.51); this one turns away
// what would take the last ones, and goes on.
//
// Thread safety: none needed: a thread of its own accepts until the listener is destroyed.
// Invariants: of the descriptors the process may have, FilesKept() are left for its files.
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
  // Takes a connection, non-blocking, which is its own to close.
  using Take = std::function<void(int fd)>;

  // Listens on "unix:/PATH", which must not exist and gets mode 0600, or on "HOST:PORT", where port
  // 0 is one that the system chooses. InvalidArgument if that cannot be; Unavailable if it cannot
  // be now, as for an address that no interface has yet. Connections wait until Accept is called.
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Listen(const std::string& address);
  // Listens no more; a Unix socket is removed.
  ~ConnectionListener();
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

  // Once. Both are called on the listener's thread, and not any more once it is destroyed;
  // `turned_away`, which may be empty, for each connection that is closed at once.
  void Accept(Take take, std::function<void()> turned_away = {});

  // As asked for, with the port that it has.
  const std::string& address() const { return address_; }

  // Descriptors that connections must not use up, of `files_max` that the process may have.
  static int64_t FilesKept(int64_t files_max);

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
