// Who calls: the seam between what a transport knows of its peer and the Caller that every manager
// is asked with.
#ifndef MEGATRAIN_SERVER_RPC_AUTHENTICATOR_H_
#define MEGATRAIN_SERVER_RPC_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include "absl/status/statusor.h"
#include "server/jobs/job.h"

namespace megatrain {

// Thread safety: Authenticate may be called from any thread.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // Does not block. UNAUTHENTICATED_CALLER if it cannot be told who calls.
  virtual absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const = 0;
};

// For Unix sockets in directories that only the daemon's user can enter: whoever reaches one is
// that user, and its administrator.
class PrivateSocketAuthenticator : public Authenticator {
 public:
  // The user of this process.
  PrivateSocketAuthenticator();

  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const override;

 private:
  Caller owner_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_AUTHENTICATOR_H_
