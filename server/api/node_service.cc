#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "engine/base/status.h"
#include "megatrain/v1/node_service.grpc.pb.h"
#include "server/api/resource_name.h"
#include "server/api/serve_api.h"
#include "server/transport/rpc_service.h"
#include "server/transport/stream_source.h"

namespace megatrain {
namespace {

using google::protobuf::util::MessageDifferencer;

// Looks once a second: the node has no series of events to be woken by.
class NodeSource : public StreamSource<v1::WatchNodeResponse> {
 public:
  explicit NodeSource(NodeReader read) : read_(std::move(read)) {}

  absl::StatusOr<StreamNext> Next(v1::WatchNodeResponse* message) override {
    v1::Node now = read_();
    if (MessageDifferencer::Equals(told_, now)) return StreamNext::kNothing;
    *message->mutable_node() = now;
    told_ = std::move(now);
    return StreamNext::kMessage;
  }
  int64_t next_sequence() const override { return 0; }
  std::chrono::milliseconds poll_interval() const override { return std::chrono::seconds(1); }

 private:
  const NodeReader read_;
  v1::Node told_;
};

// megatrain.v1.NodeService: answers from a NodeReader.
//
// Thread safety: gRPC calls the public methods on any thread.
class NodeService final : public RpcService<v1::NodeService> {
 public:
  NodeService(NodeReader read, const ServiceContext& services)
      : RpcService(services), read_(std::move(read)) {}

  UnaryReactor* GetNode(CallContext* context, const v1::GetNodeRequest* request,
                        v1::Node* response) override {
    return Unary("GetNode", AnswerOn::kQueue, context, request, response, [=, this](const Caller&) {
      MT_RETURN_IF_ERROR(CheckNodeName("name", request->name()));
      *response = read_();
      return absl::OkStatus();
    });
  }

  StreamReactor<v1::WatchNodeResponse>* WatchNode(CallContext* context,
                                                  const v1::WatchNodeRequest* request) override {
    StreamOptions streams = services_.streams;
    streams.pace = std::chrono::seconds(1);
    return Stream<v1::WatchNodeResponse>(
        "WatchNode", AnswerOn::kCallback, context, request, streams,
        [=, this](const Caller&, std::function<void()>) -> OpenedSource<v1::WatchNodeResponse> {
          MT_RETURN_IF_ERROR(CheckNodeName("name", request->name()));
          return std::make_unique<NodeSource>(read_);
        });
  }

 private:
  const NodeReader read_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewNodeService(NodeReader read, const ServiceContext& services) {
  return std::make_unique<NodeService>(std::move(read), services);
}

}  // namespace megatrain
