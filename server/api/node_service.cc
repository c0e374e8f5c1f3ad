#include "server/api/node_service.h"

#include <google/protobuf/util/message_differencer.h>

#include <chrono>
#include <memory>
#include <utility>

#include "engine/base/status.h"
#include "server/api/resource_name.h"
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

}  // namespace

NodeService::NodeService(NodeReader read, const ServiceContext& services)
    : RpcService(services), read_(std::move(read)) {}

UnaryReactor* NodeService::GetNode(CallContext* context, const v1::GetNodeRequest* request,
                                   v1::Node* response) {
  return Unary("GetNode", AnswerOn::kQueue, context, request, response, [=, this](const Caller&) {
    MT_RETURN_IF_ERROR(CheckNodeName("name", request->name()));
    *response = read_();
    return absl::OkStatus();
  });
}

StreamReactor<v1::WatchNodeResponse>* NodeService::WatchNode(CallContext* context,
                                                             const v1::WatchNodeRequest* request) {
  StreamOptions streams = services_.streams;
  streams.pace = std::chrono::seconds(1);
  return Stream<v1::WatchNodeResponse>(
      "WatchNode", AnswerOn::kCallback, context, request, streams,
      [=, this](const Caller&, std::function<void()>) -> OpenedSource<v1::WatchNodeResponse> {
        MT_RETURN_IF_ERROR(CheckNodeName("name", request->name()));
        return std::make_unique<NodeSource>(read_);
      });
}

}  // namespace megatrain
