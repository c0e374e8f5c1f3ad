#include "server/transport/observed_authenticator.h"

#include <optional>
#include <string>
#include <utility>

#include "server/jobs/error_reason.h"

namespace megatrain {
namespace {

void Tell(const RefusalObserver& observer, const absl::Status& status, std::string peer) {
  const std::optional<ErrorReasonInfo> info = ReasonOf(status);
  observer({Refusal::Kind::kCaller, info.has_value() ? info->reason : "INTERNAL_ERROR",
            std::move(peer), std::string(status.message())});
}

}  // namespace

ObservedAuthenticator::ObservedAuthenticator(const Authenticator* base, RefusalObserver observer)
    : base_(base), observer_(std::move(observer)) {}

absl::StatusOr<Caller> ObservedAuthenticator::Authenticate(
    const grpc::ServerContextBase& context) const {
  absl::StatusOr<Caller> caller = base_->Authenticate(context);
  if (!caller.ok()) Tell(observer_, caller.status(), context.peer());
  return caller;
}

std::optional<absl::StatusOr<Caller>> ObservedAuthenticator::AuthenticateAtOnce(
    const grpc::ServerContextBase& context) const {
  std::optional<absl::StatusOr<Caller>> caller = base_->AuthenticateAtOnce(context);
  if (caller.has_value() && !caller->ok()) Tell(observer_, caller->status(), context.peer());
  return caller;
}

std::function<absl::Status()> ObservedAuthenticator::Recheck(
    const grpc::ServerContextBase& context) const {
  std::function<absl::Status()> recheck = base_->Recheck(context);
  if (recheck == nullptr) return nullptr;
  // An error ends the stream, and so is told once.
  return [this, recheck = std::move(recheck), peer = context.peer()] {
    absl::Status status = recheck();
    if (!status.ok()) Tell(observer_, status, peer);
    return status;
  };
}

}  // namespace megatrain
