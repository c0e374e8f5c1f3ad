// megatrain.v1.NodeService.
#ifndef MEGATRAIN_SERVER_RPC_NODE_SERVICE_H_
#define MEGATRAIN_SERVER_RPC_NODE_SERVICE_H_

#include <utility>

#include "megatrain/v1/node_service.grpc.pb.h"
#include "server/rpc/node_status.h"
#include "server/rpc/service_context.h"

namespace megatrain {

class NodeService final : public v1::NodeService::CallbackService {
 public:
  NodeService(NodeStatusReader status, const ServiceContext& context)
      : status_(std::move(status)), context_(context) {}

  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request, v1::Node* response) override;
  grpc::ServerWriteReactor<v1::WatchNodeResponse>* WatchNode(
      grpc::CallbackServerContext* context, const v1::WatchNodeRequest* request) override;

 private:
  const NodeStatusReader status_;
  const ServiceContext context_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_NODE_SERVICE_H_
