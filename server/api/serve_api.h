// Serves the daemon's API, JobService and NodeService of megatrain.v1, on a gRPC server.
#ifndef MEGATRAIN_SERVER_API_SERVE_API_H_
#define MEGATRAIN_SERVER_API_SERVE_API_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "megatrain/v1/node.pb.h"
#include "server/identity/authenticator.h"
#include "server/manager/job_manager.h"
#include "server/transport/grpc_server.h"
#include "server/transport/service_context.h"
#include "server/worker/job_records.h"

namespace megatrain {

// Returns the node as it is now. Called from any thread, by several at once; must return soon.
using NodeReader = std::function<v1::Node()>;

// Make the two services. What the pointers, `read` and the pointers in `services` refer to must
// outlive the server. `services` itself is copied.
std::unique_ptr<grpc::Service> NewJobService(JobManager* manager, JobRecordsDirectory* records,
                                             const ServiceContext& services);
std::unique_ptr<grpc::Service> NewNodeService(NodeReader read, const ServiceContext& services);

// Starts a server with JobService and NodeService. The targets of the pointers, and what `node`
// refers to, must outlive the server. Returns the errors of GrpcServer::Start.
absl::StatusOr<std::unique_ptr<GrpcServer>> ServeApi(const GrpcServerOptions& options,
                                                     const Authenticator* authenticator,
                                                     JobManager* manager,
                                                     JobRecordsDirectory* records, NodeReader node);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_SERVE_API_H_
