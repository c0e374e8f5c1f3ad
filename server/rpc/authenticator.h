// Who calls: the seam between what a transport knows of its peer and the Caller that every manager
// is asked with.
#ifndef MEGATRAIN_SERVER_RPC_AUTHENTICATOR_H_
#define MEGATRAIN_SERVER_RPC_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"

namespace megatrain {

// Thread safety: Authenticate may be called from any thread.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // Does not wait for callers or the network. Unauthenticated if it cannot be told who calls.
  virtual absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const = 0;

  // Whether the caller of a stream is still let in, for as long as it is open: an error ends it.
  // Null: it is, whatever happens. The function may outlive the call, not the authenticator.
  virtual std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const {
    return nullptr;
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_AUTHENTICATOR_H_
