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

// Makes the place for a socket `path` ready to be bound: checks its directory, which is made
// (private; its parents are not made) if it is missing, and removes a socket that nobody listens on
// any more. Returns who will reach the socket. InvalidArgument, with what to do: the path is not
// absolute or too long, there is another file, or the directory belongs to neither this process'
// user nor root, or others may write to it and so put a socket of their own there.
// FailedPrecondition: another process listens there. FileError's codes otherwise.
absl::StatusOr<SocketAccess> PrepareUnixSocket(const std::string& path);

// Lets a group connect to the bound socket `path` (mode 0660): the group megatrain if there is one
// and this process may hand it the socket, else that of the directory, else the process' own.
// Returns its name.
absl::StatusOr<std::string> ShareUnixSocket(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UNIX_SOCKET_H_
