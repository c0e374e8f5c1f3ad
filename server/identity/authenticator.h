// Who calls: the seam between what a transport knows of its peer and the Caller that every manager
// is asked with.
#ifndef MEGATRAIN_SERVER_IDENTITY_AUTHENTICATOR_H_
#define MEGATRAIN_SERVER_IDENTITY_AUTHENTICATOR_H_

#include <grpcpp/server_context.h>

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/identity/caller.h"

namespace megatrain {

// Thread safety: all methods may be called from any thread.
class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // Unauthenticated if it cannot be told who calls. May wait for the machine's account database,
  // which may be a directory service that does not answer.
  virtual absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const = 0;

  // The same where it can be told without waiting; else nothing.
  virtual std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const {
    return Authenticate(context);
  }

  // Whether the caller of a stream is still let in, for as long as it is open: an error ends it.
  // Null: it is, whatever happens. The function may outlive the call, not the authenticator; it may
  // wait as Authenticate may.
  virtual std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const {
    return nullptr;
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_AUTHENTICATOR_H_
