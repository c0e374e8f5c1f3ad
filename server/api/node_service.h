// megatrain.v1.NodeService: answers from a NodeStatusReader.
//
// Thread safety: gRPC calls the public methods on any thread.
#ifndef MEGATRAIN_SERVER_API_NODE_SERVICE_H_
#define MEGATRAIN_SERVER_API_NODE_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include "megatrain/v1/node_service.grpc.pb.h"
#include "server/api/node_status.h"
#include "server/transport/rpc_service.h"
#include "server/transport/service_context.h"

namespace megatrain {

class NodeService final : public RpcService<v1::NodeService> {
 public:
  // `status` is copied. What it and `services` refer to must outlive the service.
  NodeService(NodeStatusReader status, const ServiceContext& services);

  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request, v1::Node* response) override;
  grpc::ServerWriteReactor<v1::WatchNodeResponse>* WatchNode(
      grpc::CallbackServerContext* context, const v1::WatchNodeRequest* request) override;

 private:
  const NodeStatusReader status_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_NODE_SERVICE_H_
