#include "engine/trainer/rank_pipeline.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/model/rope.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<RankPipeline>> RankPipeline::Create(
    const JobSpec& spec, const MemoryPlan& plan, int rank, RankParts parts, HostPool* pool,
    const std::vector<ProcessTile>* tiles, std::function<void(const absl::Status&)> failed) {
  std::unique_ptr<RankPipeline> pipeline(new RankPipeline(plan, rank, std::move(parts)));
  if (const absl::Status status = pipeline->Open(spec, pool, tiles, std::move(failed));
      !status.ok()) {
    pipeline->Abort(status);
    return status;
  }
  return pipeline;
}

absl::Status RankPipeline::Open(const JobSpec& spec, HostPool* pool,
                                const std::vector<ProcessTile>* tiles,
                                std::function<void(const absl::Status&)> failed) {
  const RankParts& own = parts_;
  last_matmul_seconds_ = own.device->kernels().MatMulSeconds();
  MT_RETURN_IF_ERROR(TakeDevice());
  MT_ASSIGN_OR_RETURN(host_buffers_, LeaseHostBuffers(dimensions_, own.device->numa_node(), *pool));
  StepRunnerParts runner;
  runner.dimensions = &dimensions_;
  runner.device = own.device;
  runner.attention = spec.engine.attention;
  runner.preference = spec.training.dpo;
  runner.updater = own.updater;
  runner.device_buffers = &device_buffers_;
  runner.host_buffers = &host_buffers_;
  runner.tiles = tiles;
  if (dimensions_.training) {
    runner.part = static_cast<size_t>(dimensions_.shape.rank - plan_.dimensions.shape.rank);
  }
  runner.host_nodes = &pool->nodes();
  runner.tile_communicator = own.communicators.tiles.get();
  runner.value_communicator = own.communicators.values.get();
  runner_ = std::make_unique<StepRunner>(runner);
  MT_ASSIGN_OR_RETURN(executor_, Executor::Create(own.device, runner_.get(), std::move(failed)));
  return absl::OkStatus();
}

absl::Status RankPipeline::TakeDevice() {
  Device& device = *parts_.device;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory, device.Allocate(plan_.arena_bytes));
  DeviceArena arena(memory->data(), plan_.arena_bytes);
  MT_ASSIGN_OR_RETURN(device_buffers_, ReserveDeviceBuffers(dimensions_, device.kernels(), arena));
  arena.Seal();
  MT_RETURN_IF_ERROR(UploadRopeTables());
  pipeline_state_ = {};  // what the buffers held is gone
  arena_memory_ = std::move(memory);
  return absl::OkStatus();
}

void RankPipeline::ReleaseDevice() {
  device_buffers_ = {};
  arena_memory_ = nullptr;
}

absl::Status RankPipeline::UploadRopeTables() {
  const PipelineDimensions& d = dimensions_;
  Device& device = *parts_.device;
  // Piece by piece: the tables of a million positions are half a gigabyte, which the plan does not
  // count on the host.
  constexpr int64_t kPositions = 4096;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.CreateStream(StreamUse::kCopy));
  for (size_t i = 0; i < device_buffers_.ropes.size(); ++i) {
    const RopeConfig& rope = d.layout->model.ropes[i];
    const RopeTable& table = device_buffers_.ropes[i];
    const int64_t half = rope.rotary_dim / 2;
    std::vector<float> cosine(kPositions * half), sine(kPositions * half);
    for (int64_t begin = 0; begin < d.sequence_length; begin += kPositions) {
      const int64_t end = std::min(d.sequence_length, begin + kPositions);
      const int64_t bytes = (end - begin) * half * int64_t{sizeof(float)};
      RopeTables(rope, d.sequence_length, begin, end, cosine.data(), sine.data());
      MT_RETURN_IF_ERROR(device.Upload(*stream, table.cosine + begin * half, cosine.data(), bytes));
      MT_RETURN_IF_ERROR(device.Upload(*stream, table.sine + begin * half, sine.data(), bytes));
    }
  }
  return absl::OkStatus();
}

double RankPipeline::TakeMatMulSeconds() {
  const double before = last_matmul_seconds_;
  last_matmul_seconds_ = parts_.device->kernels().MatMulSeconds();
  return last_matmul_seconds_ - before;
}

}  // namespace megatrain
