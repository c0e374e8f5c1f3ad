// megatrain.v1.NodeService: answers from a NodeReader.
//
// Thread safety: gRPC calls the public methods on any thread.
#ifndef MEGATRAIN_SERVER_API_NODE_SERVICE_H_
#define MEGATRAIN_SERVER_API_NODE_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <functional>

#include "megatrain/v1/node_service.grpc.pb.h"
#include "server/transport/rpc_service.h"
#include "server/transport/service_context.h"

namespace megatrain {

// Returns the node as it is now. Called from any thread, by several at once; must return soon.
using NodeReader = std::function<v1::Node()>;

class NodeService final : public RpcService<v1::NodeService> {
 public:
  // What `read` and `services` refer to must outlive the service.
  NodeService(NodeReader read, const ServiceContext& services);

  UnaryReactor* GetNode(CallContext* context, const v1::GetNodeRequest* request,
                        v1::Node* response) override;
  StreamReactor<v1::WatchNodeResponse>* WatchNode(CallContext* context,
                                                  const v1::WatchNodeRequest* request) override;

 private:
  const NodeReader read_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_NODE_SERVICE_H_
