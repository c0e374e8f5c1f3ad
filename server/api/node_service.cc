#include "server/api/node_service.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "server/api/conversion.h"
#include "server/api/resource_name.h"
#include "server/transport/error_status.h"
#include "server/transport/stream_source.h"

namespace megatrain {
namespace {

v1::Node::State ToProto(NodeStatus::State state) {
  switch (state) {
    case NodeStatus::State::kStarting:
      return v1::Node::STARTING;
    case NodeStatus::State::kReady:
      return v1::Node::READY;
    case NodeStatus::State::kStopping:
      return v1::Node::STOPPING;
  }
  return v1::Node::STATE_UNSPECIFIED;
}

void ToProto(const NodeStatus& status, v1::Node* proto) {
  proto->set_name(kNodeName);
  proto->set_state(ToProto(status.state));
  proto->set_daemon_version(status.daemon_version);
  proto->set_hostname(ValidUtf8(status.hostname));
  *proto->mutable_start_time() = ToTimestamp(status.started);
  for (const NodeStatus::Device& device : status.devices) {
    v1::Device* const added = proto->add_devices();
    added->set_id(device.name);
    added->set_description(ValidUtf8(device.description));
    added->set_busy(device.busy);
  }
  if (proto->devices_size() > 0) *proto->mutable_device() = proto->devices(0);
  proto->mutable_host_pool()->set_size_bytes(status.pool_bytes);
  proto->mutable_host_pool()->set_pinned_bytes(status.pool_pinned_bytes);
  proto->mutable_host_pool()->set_used_bytes(status.pool_used_bytes);
  proto->mutable_state_disk()->set_size_bytes(status.disk_bytes);
  proto->mutable_state_disk()->set_free_bytes(status.disk_free_bytes);
  proto->set_threads(status.threads);
  if (status.rates.measured()) {
    v1::MeasuredRates* const rates = proto->mutable_rates();
    rates->set_fp32_flops_per_second(status.rates.fp32.matmul_flops_per_second);
    rates->set_bf16_flops_per_second(status.rates.bf16.matmul_flops_per_second);
    rates->set_h2d_bytes_per_second(status.rates.h2d_bytes_per_second);
    rates->set_d2h_bytes_per_second(status.rates.d2h_bytes_per_second);
    rates->set_fp32_update_bytes_per_second(status.rates.fp32.update_bytes_per_second);
    rates->set_bf16_update_bytes_per_second(status.rates.bf16.update_bytes_per_second);
    rates->set_h2d_beside_d2h_bytes_per_second(status.rates.h2d_beside_d2h_bytes_per_second);
    rates->set_d2h_beside_h2d_bytes_per_second(status.rates.d2h_beside_h2d_bytes_per_second);
  }
  proto->mutable_jobs()->set_queued(status.queued_jobs);
  proto->mutable_jobs()->set_running(status.active_jobs);
  proto->mutable_jobs()->set_paused(status.paused_jobs);
}

// Looks once a second: the node has no series of events to be woken by.
class NodeSource : public StreamSource<v1::WatchNodeResponse> {
 public:
  explicit NodeSource(NodeStatusReader status) : status_(std::move(status)) {}

  absl::StatusOr<StreamNext> Next(v1::WatchNodeResponse* message) override {
    NodeStatus now = status_();
    if (told_ == now) return StreamNext::kNothing;
    ToProto(now, message->mutable_node());
    told_ = std::move(now);
    return StreamNext::kMessage;
  }
  int64_t next_sequence() const override { return 0; }
  std::chrono::milliseconds poll_interval() const override { return std::chrono::seconds(1); }

 private:
  const NodeStatusReader status_;
  std::optional<NodeStatus> told_;
};

}  // namespace

NodeService::NodeService(NodeStatusReader status, const ServiceContext& services)
    : RpcService(services), status_(std::move(status)) {}

grpc::ServerUnaryReactor* NodeService::GetNode(grpc::CallbackServerContext* context,
                                               const v1::GetNodeRequest* request,
                                               v1::Node* response) {
  return Unary("GetNode", AnswerOn::kQueue, context, request, response, [=, this](const Caller&) {
    MT_RETURN_IF_ERROR(CheckNodeName("name", request->name()));
    ToProto(status_(), response);
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::WatchNodeResponse>* NodeService::WatchNode(
    grpc::CallbackServerContext* context, const v1::WatchNodeRequest* request) {
  StreamOptions streams = services_.streams;
  streams.pace = std::chrono::seconds(1);
  return Stream<v1::WatchNodeResponse>(
      "WatchNode", AnswerOn::kCallback, context, request, streams,
      [=, this](const Caller&, std::function<void()>) -> OpenedSource<v1::WatchNodeResponse> {
        MT_RETURN_IF_ERROR(CheckNodeName("name", request->name()));
        return std::make_unique<NodeSource>(status_);
      });
}

}  // namespace megatrain
