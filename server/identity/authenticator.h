// Finds out who calls: between what a transport knows of its peer and the Caller that the
// JobManager is called with.
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

  // Returns who calls. Unauthenticated if that cannot be told; Unavailable if the machine's account
  // database cannot be read. May wait for that database, which may be a directory service that does
  // not answer.
  virtual absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const = 0;

  // Returns the same if it can be told without waiting, else nullopt.
  virtual std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const {
    return Authenticate(context);
  }

  // Returns a function that tells whether the caller of an open stream is still let in; its error
  // is to end the stream. Null: the caller stays let in. The function may outlive the call, but not
  // the authenticator, and may wait as Authenticate may.
  virtual std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const {
    return nullptr;
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_AUTHENTICATOR_H_
