// Lets callers in for services that tell nothing of anyone.
#ifndef MEGATRAIN_SERVER_TRANSPORT_OPEN_AUTHENTICATOR_H_
#define MEGATRAIN_SERVER_TRANSPORT_OPEN_AUTHENTICATOR_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "server/jobs/job.h"
#include "server/transport/authenticator.h"

namespace megatrain {

// Everyone; who it is is not asked.
class OpenAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase&) const override {
    return Caller();
  }
};

// Everyone on Unix sockets, which only users of the machine reach, and on TCP those that `base`
// knows: strangers on the network are not given memory for calls they may hold open.
class LocallyOpenAuthenticator final : public Authenticator {
 public:
  // `base` must outlive this object.
  explicit LocallyOpenAuthenticator(const Authenticator* base) : base_(base) {}

  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const override {
    if (absl::StartsWith(context.peer(), "unix")) return Caller();
    return base_->Authenticate(context);
  }
  std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const override {
    if (absl::StartsWith(context.peer(), "unix")) return Caller();
    return base_->AuthenticateAtOnce(context);
  }

 private:
  const Authenticator* const base_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_OPEN_AUTHENTICATOR_H_
