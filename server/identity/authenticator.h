// Authenticator finds out who calls. It turns what the transport knows of its peer, and the call's
// metadata, into a Caller, on which the JobManager bases its decisions.
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

  // Returns who calls. Returns Unauthenticated if that cannot be told, and Unavailable if the
  // machine's account database cannot be read. May wait for that database, which may be a directory
  // service that does not answer.
  virtual absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const = 0;

  // Returns what Authenticate would return, without waiting for the account database. Returns
  // nullopt if the account must be looked up there. The default calls Authenticate, for classes
  // whose Authenticate does not wait.
  virtual std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const {
    return Authenticate(context);
  }

  // Returns a function that checks whether the caller of an open stream is still let in. An error
  // of the function must end the stream. Returns null, as the default does, if the caller need not
  // be checked again. The function may outlive the call, but not the authenticator, and may wait as
  // Authenticate may.
  virtual std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const {
    return nullptr;
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_AUTHENTICATOR_H_
