// Lets only known callers on TCP ask for reflection. It tells nothing secret, but a call of it
// holds one of few threads (grpc_server.cc), which strangers are not given. On Unix sockets, which
// only the daemon's own users reach, it is open.
#ifndef MEGATRAIN_SERVER_RPC_REFLECTION_GUARD_H_
#define MEGATRAIN_SERVER_RPC_REFLECTION_GUARD_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/rpc/authenticator.h"

namespace megatrain {

// For grpc::ServerBuilder::experimental_type::SetInterceptorCreators. Calls that are refused end as
// UNAUTHENTICATED. `authenticator` must outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> GuardReflection(
    const Authenticator* authenticator);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_REFLECTION_GUARD_H_
