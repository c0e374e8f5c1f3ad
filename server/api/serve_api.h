// The API of the daemon on a gRPC server.
#ifndef MEGATRAIN_SERVER_API_SERVE_API_H_
#define MEGATRAIN_SERVER_API_SERVE_API_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/api/node_service.h"
#include "server/identity/authenticator.h"
#include "server/manager/job_manager.h"
#include "server/transport/grpc_server.h"
#include "server/worker/job_records.h"

namespace megatrain {

// Starts a server with JobService and NodeService. The targets of the pointers, and what `node`
// refers to, must outlive the server. Errors as GrpcServer::Start's.
absl::StatusOr<std::unique_ptr<GrpcServer>> ServeApi(const GrpcServerOptions& options,
                                                     const Authenticator* authenticator,
                                                     JobManager* manager,
                                                     JobRecordsDirectory* records, NodeReader node);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_SERVE_API_H_
