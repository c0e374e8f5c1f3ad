#include "server/api/serve_api.h"

#include <utility>
#include <vector>

#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<GrpcServer>> ServeApi(const GrpcServerOptions& options,
                                                     const Authenticator* authenticator,
                                                     JobManager* manager,
                                                     JobRecordsDirectory* records,
                                                     NodeReader node) {
  return GrpcServer::Start(options, authenticator, [&](const ServiceContext& services) {
    std::vector<GrpcService> api;
    api.push_back({v1::JobService::service_full_name(), NewJobService(manager, records, services)});
    api.push_back(
        {v1::NodeService::service_full_name(), NewNodeService(std::move(node), services)});
    return api;
  });
}

}  // namespace megatrain
