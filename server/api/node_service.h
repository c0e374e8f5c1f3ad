// megatrain.v1.NodeService: answers from a NodeStatusReader.
//
// Thread safety: gRPC calls the public methods on any thread.
#ifndef MEGATRAIN_SERVER_API_NODE_SERVICE_H_
#define MEGATRAIN_SERVER_API_NODE_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/node_service.grpc.pb.h"
#include "server/api/node_status.h"
#include "server/transport/rpc_service.h"
#include "server/transport/service_context.h"
#include "server/transport/stream_source.h"

namespace megatrain {

class NodeService final : public RpcService<NodeService, v1::NodeService> {
 public:
  // `status` is copied. What it and `services` refer to must outlive the service.
  NodeService(NodeStatusReader status, const ServiceContext& services);

  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request, v1::Node* response) override;
  grpc::ServerWriteReactor<v1::WatchNodeResponse>* WatchNode(
      grpc::CallbackServerContext* context, const v1::WatchNodeRequest* request) override;

 private:
  absl::Status GetNode(const Caller& caller, const v1::GetNodeRequest& request, v1::Node* response);
  absl::StatusOr<std::unique_ptr<StreamSource<v1::WatchNodeResponse>>> WatchNode(
      const Caller& caller, const v1::WatchNodeRequest& request, std::function<void()> wake);

  const NodeStatusReader status_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_NODE_SERVICE_H_
