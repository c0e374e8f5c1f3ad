// An Authenticator that tells whom it does not let in.
#ifndef MEGATRAIN_SERVER_TRANSPORT_OBSERVED_AUTHENTICATOR_H_
#define MEGATRAIN_SERVER_TRANSPORT_OBSERVED_AUTHENTICATOR_H_

#include <functional>
#include <optional>

#include "server/transport/authenticator.h"
#include "server/transport/refusal.h"

namespace megatrain {

class ObservedAuthenticator : public Authenticator {
 public:
  // `base` must outlive this object.
  ObservedAuthenticator(const Authenticator* base, RefusalObserver observer);

  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const override;
  std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const override;
  std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const override;

 private:
  const Authenticator* const base_;
  const RefusalObserver observer_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_OBSERVED_AUTHENTICATOR_H_
