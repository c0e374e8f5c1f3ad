// The Unix socket that a daemon listens on.
#ifndef MEGATRAIN_SERVER_RPC_UNIX_SOCKET_H_
#define MEGATRAIN_SERVER_RPC_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"

namespace megatrain {

// Whether a daemon may listen on the socket `path`, which need not exist, and know its callers: the
// directory must be one that only this process' user can enter (mode 0700). A missing one is made,
// its parents are not. A socket that nobody listens on any more is removed. InvalidArgument says
// what to do; FailedPrecondition: another process listens there.
absl::Status PreparePrivateSocket(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_UNIX_SOCKET_H_
