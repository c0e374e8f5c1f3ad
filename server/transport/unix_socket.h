// The Unix sockets that a daemon listens on, and who may reach them.
#ifndef MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_
#define MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

enum class SocketAccess {
  kPrivate,  // in a directory that only the daemon's user can enter (0700): callers are that user
  kShared,   // others can enter: callers must prove who they are
};

// Whether a daemon may listen on the socket `path`, which need not exist, and who will reach it.
// The directory must belong to this process' user or root, and nobody else may write to it: they
// could put a socket of their own in its place. A missing one is made private, its parents are not
// made. A socket that nobody listens on any more is removed. InvalidArgument says what to do;
// FailedPrecondition: another process listens there.
absl::StatusOr<SocketAccess> PrepareUnixSocket(const std::string& path);

// Lets a group connect to the bound socket `path` (mode 0660): the group megatrain if there is one
// and this process may hand it the socket, else that of the directory, else the process' own.
// Returns its name.
absl::StatusOr<std::string> ShareUnixSocket(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_
