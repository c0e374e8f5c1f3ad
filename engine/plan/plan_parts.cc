#include "engine/plan/plan_parts.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/model/head/language_head.h"
#include "engine/model/tile.h"
#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {
namespace {

int64_t MicroBatches(const JobSpec& spec) {
  return (spec.training.global_batch + spec.training.micro_batch - 1) / spec.training.micro_batch;
}

// Checks that the micro-batches of a step can be shared by the job's devices and folds.
absl::Status CheckSharing(const JobSpec& spec, bool tied, int64_t micro_batches, int processes) {
  const int64_t devices = processes * std::max<int64_t>(1, spec.engine.devices);
  const std::string key =
      processes == 1 ? "engine.devices: " : absl::StrCat("job of ", processes, " processes: ");
  const int64_t shards = spec.training.gradient_shards;
  const std::string step = absl::StrCat("a step of ", micro_batches,
                                        micro_batches == 1 ? " micro-batch" : " micro-batches",
                                        " (training.global_batch ", spec.training.global_batch,
                                        ", micro_batch ", spec.training.micro_batch, ")");
  if (devices > micro_batches) {
    return absl::InvalidArgumentError(absl::StrCat(key, devices, " devices cannot share ", step,
                                                   "; use at most ", micro_batches,
                                                   ", or a smaller micro_batch"));
  }
  if (shards > micro_batches) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.gradient_shards: ", step, " has no ", shards, " parts; use at most ",
        std::bit_floor(static_cast<uint64_t>(micro_batches)), ", or a smaller micro_batch"));
  }
  if (shards > 1 && shards % devices != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, devices, " devices cannot share the ", shards,
        " parts of training.gradient_shards evenly; use a power of two up to ", shards));
  }
  const int64_t of_device = (micro_batches + devices - 1) / devices;
  const int64_t sweep = spec.engine.micro_batches_per_sweep;
  PipelineShape shape;
  shape.ranks = static_cast<int>(devices);
  shape.folds = static_cast<int>(std::max<int64_t>(1, shards / devices));
  shape.tied = tied;
  if (sweep > 0 && (of_device + sweep - 1) / sweep > shape.sweeps_max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.micro_batches_per_sweep: ", sweep, " makes ", (of_device + sweep - 1) / sweep,
        " sweeps of the ", of_device, " micro-batches that a device has a step; with ",
        devices > 1 ? "several devices" : "training.gradient_shards above 1", " there ",
        shape.sweeps_max() == 1 ? "is one" : "are two at most", ", so leave it 0"));
  }
  return absl::OkStatus();
}

}  // namespace

PipelineShape BaseShape(const ModelLayout& layout, DType dtype) {
  const ModelDescription& model = layout.model;
  PipelineShape shape;
  for (const Stage& stage : layout.stages) {
    shape.stages.push_back(
        {.tile = stage.tile, .expert_tiles = stage.expert_tiles, .joins = stage.joins});
  }
  shape.tied = model.tied_embeddings;
  for (const TileLayout& tile : layout.tiles) {
    shape.tile_elements.push_back(tile.elements);
    shape.stateless_elements.push_back(tile.stateless_elements);
  }
  // The gradient of the norm that layers share comes with the embedding's.
  shape.embedding_trained = IsTrained(layout.tiles[0], layout.embedding_offset) ||
                            IsTrained(layout.tiles[0], layout.per_layer_norm_offset);
  shape.weight_element_bytes = DTypeBytes(dtype);
  shape.hidden_bytes_per_token = model.hidden * DTypeBytes(dtype);
  shape.embedding_from_host = true;
  return shape;
}

absl::Status CheckHeadSizes(const ModelDescription& model, const KernelSizes& sizes) {
  for (const int layer : LayersOfDifferentAttention(model)) {
    const LayerDescription& d = model.layers[static_cast<size_t>(layer)];
    const bool delta_net = d.attention_kind() == AttentionKind::kDeltaNet;
    const int64_t size =
        delta_net ? d.delta_net.key_dim : std::max(d.attention.head_dim, d.attention.value_dim());
    const int64_t most = delta_net ? sizes.DeltaKeyDimMax() : sizes.HeadDimMax();
    if (size <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "config.json: ", delta_net ? "linear_key_head_dim" : "head_dim", ": layer ", layer,
        " has heads of ", size, " elements, and the kernels of this device take at most ", most));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const JobSpec& spec, const ModelLayout& layout, int processes) {
  const int64_t s = spec.data.sequence_length;
  if (s > layout.model.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.sequence_length: ", s, " tokens is longer than the model's ",
                     layout.model.max_positions,
                     " positions (max_position_embeddings in config.json); use at most that"));
  }
  // A token's choices of experts are numbered in 32 bits.
  int64_t chosen = 1;
  for (const LayerDescription& layer : layout.model.layers) {
    chosen = std::max(chosen, layer.experts.chosen);
  }
  const int64_t tokens_max = kMicroBatchTokensMax / chosen;
  if (spec.training.micro_batch > tokens_max / s) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.micro_batch: ", spec.training.micro_batch, " sequences of ", s,
                     " tokens are too many for one micro-batch; at most ", tokens_max / s,
                     " such sequences are possible"));
  }
  const int64_t micro_batches = MicroBatches(spec);
  MT_RETURN_IF_ERROR(CheckSharing(spec, layout.model.tied_embeddings, micro_batches, processes));
  // All tiles but those of the model's ends.
  const int64_t layers = layout.tile_count() - (layout.model.tied_embeddings ? 1 : 2);
  if (micro_batches > kStepLayerPassesMax / layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.global_batch: ", spec.training.global_batch, " in micro-batches of ",
        spec.training.micro_batch, " is ", micro_batches, " of them a step, and with ", layers,
        MostExperts(layout.model) > 0 ? " tiles of layers and experts" : " layers", " at most ",
        kStepLayerPassesMax / layers,
        " can be scheduled; use a larger training.micro_batch or a smaller global_batch"));
  }
  return absl::OkStatus();
}

void SetBatch(const JobSpec& spec, const ModelLayout& layout, const KernelSizes& sizes,
              PipelineDimensions& d, int processes) {
  d.sequence_length = spec.data.sequence_length;
  d.micro_batch_tokens = spec.training.micro_batch * d.sequence_length;
  d.step_tokens = spec.training.global_batch * d.sequence_length;
  d.processes = processes;
  d.shape.ranks = processes * static_cast<int>(std::max<int64_t>(1, spec.engine.devices));
  d.shape.folds =
      static_cast<int>(std::max<int64_t>(1, spec.training.gradient_shards / d.shape.ranks));
  d.micro_batches = static_cast<int>((MicroBatches(spec) + d.shape.ranks - 1) / d.shape.ranks);
  d.head_chunk_tokens = HeadChunkTokens(layout.model, d.micro_batch_tokens, sizes.LmHeadChunk());
  d.layer_chunk_tokens = LayerChunkTokens(d.micro_batch_tokens);
}

}  // namespace megatrain
