// grpc.health.v1.Health: whether the server, and each of its services, can do its work.
#ifndef MEGATRAIN_SERVER_TRANSPORT_HEALTH_SERVICE_H_
#define MEGATRAIN_SERVER_TRANSPORT_HEALTH_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/transport/rpc_service.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_source.h"

namespace megatrain {

// Open to every caller: it tells nothing but this, and load balancers ask before they know anyone.
// So that strangers cannot take the places of others, there are at most kWatchesMax watches.
// Thread safety: all methods may be called from any thread.
class HealthService final : public RpcService<HealthService, grpc::health::v1::Health> {
 public:
  static constexpr int kWatchesMax = 64;
  static constexpr size_t kNameBytesMax = 200;  // as gRPC's own health service has it

  // The context's authenticator is not asked.
  explicit HealthService(const ServiceContext& context);

  // `service`: a full name, or "" for the server as a whole. It is known from now on.
  void SetServing(const std::string& service, bool serving);
  // Nothing serves any more.
  void SetNoneServing();

  // Nothing for a service that is not known.
  std::optional<bool> Serving(const std::string& service) const;

 private:
  using Request = grpc::health::v1::HealthCheckRequest;
  using Response = grpc::health::v1::HealthCheckResponse;

  absl::Status Check(const Caller& caller, const Request& request, Response* response);
  absl::StatusOr<std::unique_ptr<StreamSource<Response>>> Watch(const Caller& caller,
                                                                const Request& request,
                                                                std::function<void()> wake);

  std::atomic<int> watches_{0};
  mutable Mutex mutex_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_HEALTH_SERVICE_H_
