// Prepares the Unix sockets that a daemon listens on, and decides who may reach them.
#ifndef MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_
#define MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

enum class SocketAccess {
  kPrivate,  // its directory is closed to others: only the daemon's user and root can connect
  kShared,   // others may reach the socket, so that callers must prove who they are
};

// Prepares to bind a socket to `path`. Makes its directory if it is missing (mode 0700, parents are
// not made), checks it, and removes a socket that nobody listens on any more. Returns who will be
// able to reach the socket.
//
// Returns InvalidArgument if
// - the path is not absolute, is too long, or names a file that is no socket;
// - its directory is no directory, or belongs to neither this process' user nor root;
// - the directory's group or others may write to it, and so put a socket of their own there.
// Returns FailedPrecondition if another process listens there, and FileError's codes otherwise.
absl::StatusOr<SocketAccess> PrepareUnixSocket(const std::string& path);

// Lets a group connect to the socket `path` (mode 0660), and returns the group's name, or its
// number if it has none. It is the group megatrain if there is one and this process may give the
// socket to it, else the group of the directory on the same condition, else this process' own.
// Returns FileError's codes. REQUIRES: a socket is bound to `path`.
absl::StatusOr<std::string> ShareUnixSocket(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_
