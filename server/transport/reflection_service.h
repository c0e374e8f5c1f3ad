// grpc.reflection.v1alpha.ServerReflection: the API's description, for clients that were not
// generated from it (grpcurl and its like).
#ifndef MEGATRAIN_SERVER_TRANSPORT_REFLECTION_SERVICE_H_
#define MEGATRAIN_SERVER_TRANSPORT_REFLECTION_SERVICE_H_

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/transport/open_authenticator.h"
#include "server/transport/rpc_service.h"
#include "server/transport/service_context.h"

namespace megatrain {

// What is known of the messages and services in `pool`. Thread safe.
class ReflectedApi {
 public:
  // `services`: the full names of those that are served.
  ReflectedApi(const google::protobuf::DescriptorPool* pool, std::vector<std::string> services)
      : pool_(pool), services_(std::move(services)) {}

  grpc::reflection::v1alpha::ServerReflectionResponse Answer(
      const grpc::reflection::v1alpha::ServerReflectionRequest& request) const;

 private:
  const google::protobuf::DescriptorPool* const pool_;
  const std::vector<std::string> services_;
};

// Open to callers on Unix sockets, and to those on TCP that the context's authenticator knows.
class ReflectionService final
    : public RpcService<ReflectionService, grpc::reflection::v1alpha::ServerReflection> {
 public:
  // `services`: beside itself.
  ReflectionService(std::vector<std::string> services, const ServiceContext& context);

  // At a time. A call holds memory for as long as its caller likes.
  static constexpr size_t kCallsMax = 64;
  // Names are shorter; the time a look-up takes grows with the square of theirs.
  static constexpr size_t kRequestBytesMax = 1024;

  // Ends the calls that are open, and those to come.
  void Stop();

 private:
  class Method;
  class Call;

  // LIMIT_REACHED, STOPPING. What was added is removed before it is gone.
  absl::Status Join(Call* call);
  void Leave(Call* call);

  const LocallyOpenAuthenticator authenticator_;
  const ReflectedApi api_;
  Mutex mutex_;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_REFLECTION_SERVICE_H_
