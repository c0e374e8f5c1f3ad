#include "engine/pipeline/buffers.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/model/tile.h"

namespace megatrain {
namespace {

int64_t AccumulatorElements(const PipelineDimensions& d, int accumulator) {
  if (d.shape.is_tied_accumulator(accumulator)) return d.shape.state_elements(0);
  int64_t elements = 0;
  for (int tile = d.shape.tied ? 1 : 0; tile < d.shape.tiles(); ++tile) {
    elements = std::max(elements, d.shape.state_elements(tile));
  }
  return elements;
}

// Elements of slab `i`: those of its tile's shard with a slab a tile, else of the largest shard.
// All ranks' are alike.
int64_t SlabElements(const PipelineDimensions& d, int i) {
  if (d.shape.slab_per_tile) return d.shape.shard_elements_max(i);
  int64_t elements = 0;
  for (int tile = 0; tile < d.shape.tiles(); ++tile) {
    elements = std::max(elements, d.shape.shard_elements_max(tile));
  }
  return elements;
}

// The largest block that a rank has for its part of a tile.
int64_t TileBlockBytes(const PipelineDimensions& d, int tile) {
  if (!d.training) return d.shape.tile_elements[tile] * DTypeBytes(d.dtype);
  int64_t bytes = 0;
  for (int rank = 0; rank < d.shape.ranks; ++rank) {
    bytes = std::max(bytes, TileBytes(d.held(tile, rank), d.dtype));
  }
  return bytes;
}

int64_t SumsBytes(const PipelineDimensions& d) {
  return d.micro_batches * d.shape.loss_bytes() +
         int64_t{sizeof(double)} * d.shape.tiles() * d.shape.folds +
         int64_t{sizeof(int32_t)} * d.shape.tiles();
}

template <typename T>
absl::Status Reserve(DeviceArena& arena, const char* name, int64_t bytes, DeviceKind kind,
                     T** pointer) {
  MT_ASSIGN_OR_RETURN(const DeviceBlock block, arena.Reserve(name, bytes, kind));
  *pointer = static_cast<T*>(block.data);
  return absl::OkStatus();
}

template <typename T>
absl::Status ReserveMany(DeviceArena& arena, const char* name, int64_t count, int64_t bytes,
                         DeviceKind kind, std::vector<T*>* pointers) {
  pointers->resize(count);
  for (T*& pointer : *pointers) MT_RETURN_IF_ERROR(Reserve(arena, name, bytes, kind, &pointer));
  return absl::OkStatus();
}

absl::Status ReserveUpdates(const PipelineDimensions& d, DeviceArena& arena, DeviceBuffers& b) {
  const int64_t elements = d.update_piece_elements();
  if (elements == 0) return absl::OkStatus();
  constexpr char kName[] = "optimizer state of pieces";
  MT_RETURN_IF_ERROR(Reserve(arena, "sums", d.shape.tiles() * int64_t{sizeof(int32_t)},
                             DeviceKind::kOther, &b.update_flags));
  for (int lane = 0; lane < kDeviceUpdateLanes; ++lane) {
    Tile& state = b.update_state[lane];
    state.weight_dtype = d.dtype;
    MT_RETURN_IF_ERROR(Reserve(arena, kName, elements * DTypeBytes(d.dtype), DeviceKind::kWorkspace,
                               &state.weights));
    if (d.dtype == DType::kBF16) {
      MT_RETURN_IF_ERROR(Reserve(arena, kName, elements * int64_t{sizeof(int16_t)},
                                 DeviceKind::kWorkspace, &state.remainder));
    }
    for (float** moment : {&state.exp_avg, &state.exp_avg_sq}) {
      MT_RETURN_IF_ERROR(
          Reserve(arena, kName, elements * int64_t{sizeof(float)}, DeviceKind::kWorkspace, moment));
    }
    if (d.shape.clipping) {
      MT_RETURN_IF_ERROR(Reserve(arena, kName, elements * DTypeBytes(d.gradient_dtype),
                                 DeviceKind::kWorkspace, &b.update_gradient[lane]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceBuffers> ReserveDeviceBuffers(const PipelineDimensions& d,
                                                   const KernelSizes& sizes, DeviceArena& arena) {
  const ModelDescription& model = d.layout->model;
  const int64_t e = DTypeBytes(d.dtype);
  const int64_t t = d.micro_batch_tokens;
  DeviceBuffers b;
  MT_RETURN_IF_ERROR(ReserveMany(arena, "weight buffers", d.shape.weight_buffers,
                                 d.layout->tile_elements_max * e, DeviceKind::kWeightBuffers,
                                 &b.weights));
  MT_RETURN_IF_ERROR(ReserveMany(arena, d.shape.stash_on_host ? "hidden states" : "stash",
                                 d.shape.hidden_slots(), d.hidden_bytes(), DeviceKind::kStash,
                                 &b.hidden));
  for (int slot = 0; slot < kStepSlots; ++slot) {
    MT_RETURN_IF_ERROR(
        Reserve(arena, "batches", BatchArrays::Bytes(d), DeviceKind::kBatches, &b.batch[slot]));
    MT_RETURN_IF_ERROR(Reserve(arena, "sums", d.micro_batches * d.shape.loss_bytes(),
                               DeviceKind::kOther, &b.loss_results[slot]));
  }
  b.ropes.resize(model.ropes.size());
  for (size_t i = 0; i < b.ropes.size(); ++i) {
    const int64_t bytes =
        d.sequence_length * (model.ropes[i].rotary_dim / 2) * int64_t{sizeof(float)};
    MT_RETURN_IF_ERROR(
        Reserve(arena, "rotary tables", bytes, DeviceKind::kOther, &b.ropes[i].cosine));
    MT_RETURN_IF_ERROR(
        Reserve(arena, "rotary tables", bytes, DeviceKind::kOther, &b.ropes[i].sine));
  }
  MT_RETURN_IF_ERROR(Reserve(arena, "activations of one layer and micro-batch",
                             LayerScratchBytes(model, d.dtype, t), DeviceKind::kActivations,
                             &b.layer_scratch));
  if (d.training) {
    b.backward.workspace_bytes =
        AttentionWorkspaceBytes(model, d.dtype, t, d.sequence_length, sizes);
  }
  MT_RETURN_IF_ERROR(Reserve(arena, "chunk of a layer or the head",
                             std::max({LayerChunkBytes(model, d.dtype, d.layer_chunk_tokens),
                                       HeadScratchBytes(model, d.dtype, d.head_chunk_tokens),
                                       ExpertScratchBytes(model, d.dtype, d.layer_chunk_tokens),
                                       b.backward.workspace_bytes}),
                             DeviceKind::kWorkspace, &b.work));
  b.head = PlaceHeadScratch(model, d.dtype, d.head_chunk_tokens, b.work);
  b.experts = PlaceExpertScratch(model, d.dtype, d.layer_chunk_tokens, b.work);
  b.backward.workspace = b.work;
  MT_RETURN_IF_ERROR(ReserveMany(arena, "tokens on their way through experts",
                                 d.shape.has_experts() ? d.shape.sweep_micro_batches : 0,
                                 RoutedBytes(model, d.dtype, t), DeviceKind::kActivations,
                                 &b.routed));
  const int64_t shared_bytes = SharedRowsBytes(model, d.dtype, t, d.training);
  MT_RETURN_IF_ERROR(ReserveMany(arena, "rows shared by layers",
                                 shared_bytes > 0 ? d.shape.sweep_micro_batches : 0, shared_bytes,
                                 DeviceKind::kActivations, &b.shared));
  MT_RETURN_IF_ERROR(
      Reserve(arena, "losses", t * int64_t{sizeof(float)}, DeviceKind::kWorkspace, &b.losses));
  if (d.cache_rows > 0) {
    b.cache.resize(model.layers.size());
    for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
      const AttentionDescription& attention = model.layers[static_cast<size_t>(layer)].attention;
      if (!attention.projects_keys) {
        const int maker = MakerOfKeys(model, attention.key_set);
        b.cache[static_cast<size_t>(layer)] = b.cache[static_cast<size_t>(maker)];
        continue;
      }
      MT_RETURN_IF_ERROR(Reserve(arena, "key-value cache", d.cache_layer_bytes(layer),
                                 DeviceKind::kActivations, &b.cache[static_cast<size_t>(layer)]));
    }
  }
  if (!d.training) return b;
  if (d.shape.pairs) {
    MT_RETURN_IF_ERROR(Reserve(arena, "losses", t * int64_t{sizeof(float)}, DeviceKind::kWorkspace,
                               &b.loss_weights));
  }

  if (IsTrained(d.layout->tiles[0], d.layout->per_layer_norm_offset)) {
    const int64_t width = model.layers.front().per_layer_input.width;
    MT_RETURN_IF_ERROR(Reserve(arena, "sums", d.micro_batches * width * int64_t{sizeof(float)},
                               DeviceKind::kOther, &b.per_layer_norm_gradient));
  }
  b.accumulators.resize(d.shape.accumulators());
  MT_RETURN_IF_ERROR(Reserve(arena, "sums",
                             d.shape.accumulators() * d.shape.folds * int64_t{sizeof(double)},
                             DeviceKind::kOther, &b.norms));
  for (int i = 0; i < d.shape.accumulators(); ++i) {
    MT_RETURN_IF_ERROR(Reserve(arena, "gradient accumulators (FP32)",
                               AccumulatorElements(d, i) * int64_t{sizeof(float)},
                               DeviceKind::kGradientAccumulators, &b.accumulators[i]));
  }
  MT_RETURN_IF_ERROR(ReserveMany(arena, "hidden gradients", d.shape.sweep_micro_batches,
                                 d.hidden_bytes(), DeviceKind::kActivations, &b.hidden_gradient));
  const LayerBackwardWidths widths = BackwardWidths(model);
  MT_RETURN_IF_ERROR(Reserve(arena, "backward workspace", t * widths.mixed * e,
                             DeviceKind::kWorkspace, &b.backward.dmixed));
  MT_RETURN_IF_ERROR(Reserve(arena, "backward workspace", t * widths.projected * e,
                             DeviceKind::kWorkspace, &b.backward.dprojected));
  b.backward.dper_layer = b.backward.dprojected;
  if (widths.expanded > 0) {
    MT_RETURN_IF_ERROR(Reserve(arena, "backward workspace", t * widths.expanded * e,
                               DeviceKind::kWorkspace, &b.backward.dexpanded));
  }
  MT_RETURN_IF_ERROR(ReserveUpdates(d, arena, b));
  b.kept.resize(d.shape.kept);
  for (int i = 0; i < d.shape.kept; ++i) {
    const KeepLevel level =
        i < d.shape.kept_everything ? KeepLevel::kEverything : KeepLevel::kCheapRecomputed;
    MT_RETURN_IF_ERROR(Reserve(arena, "kept activations", KeptBytes(model, d.dtype, t, level),
                               DeviceKind::kActivations, &b.kept[i]));
  }
  return b;
}

std::array<int64_t, kHostKinds> HostBufferBytes(const PipelineDimensions& d) {
  std::array<int64_t, kHostKinds> bytes = {};
  int leases = d.tile_parts();  // of each
  auto add = [&](HostKind kind, int64_t lease) {
    bytes[static_cast<int>(kind)] += leases * HostPool::LeaseBytes(lease);
  };
  for (int tile = 0; tile < d.shape.tiles(); ++tile) add(HostKind::kTiles, TileBlockBytes(d, tile));
  leases = d.local_ranks();
  for (int slot = 0; slot < kStepSlots; ++slot) {
    add(HostKind::kBatches, BatchArrays::Bytes(d) + SumsBytes(d));
  }
  if (!d.training) return bytes;
  for (int i = 0; i < d.shape.gradient_slabs; ++i) {
    add(HostKind::kGradientSlabs, SlabElements(d, i) * d.slab_element_bytes());
  }
  if (d.shape.stash_on_host) {
    for (int stage = d.shape.lowest_stage(); stage < d.shape.stage_count(); ++stage) {
      add(HostKind::kStash, d.shape.sweep_micro_batches * d.hidden_bytes());
    }
  }
  add(HostKind::kStash, d.embedding_stash_micro_batches() * d.hidden_bytes());
  return bytes;
}

absl::StatusOr<std::vector<HostLease>> LeaseTiles(const PipelineDimensions& d,
                                                  absl::Span<const int> nodes, HostPool& pool) {
  std::vector<HostLease> blocks;
  for (int tile = 0; tile < d.shape.tiles(); ++tile) {
    for (int part = 0; part < d.tile_parts(); ++part) {
      MT_ASSIGN_OR_RETURN(HostLease lease, pool.Lease(HostKind::kTiles, TileBlockBytes(d, tile),
                                                      nodes[static_cast<size_t>(part)]));
      blocks.push_back(std::move(lease));
    }
  }
  return blocks;
}

absl::StatusOr<HostBuffers> LeaseHostBuffers(const PipelineDimensions& d, int node,
                                             HostPool& pool) {
  HostBuffers b;
  if (d.training) {
    for (int i = 0; i < d.shape.gradient_slabs; ++i) {
      MT_ASSIGN_OR_RETURN(
          HostLease lease,
          pool.Lease(HostKind::kGradientSlabs, SlabElements(d, i) * d.slab_element_bytes(), node));
      b.slabs.push_back(std::move(lease));
    }
  }
  if (d.training && d.shape.stash_on_host) {
    for (int stage = d.shape.lowest_stage(); stage < d.shape.stage_count(); ++stage) {
      MT_ASSIGN_OR_RETURN(
          HostLease lease,
          pool.Lease(HostKind::kStash, d.shape.sweep_micro_batches * d.hidden_bytes(), node));
      b.stash.push_back(std::move(lease));
    }
  }
  if (d.training) {
    MT_ASSIGN_OR_RETURN(
        b.embedding_stash,
        pool.Lease(HostKind::kStash, d.embedding_stash_micro_batches() * d.hidden_bytes(), node));
  }
  for (int slot = 0; slot < kStepSlots; ++slot) {
    MT_ASSIGN_OR_RETURN(b.batch[slot],
                        pool.Lease(HostKind::kBatches, BatchArrays::Bytes(d) + SumsBytes(d), node));
    b.loss_results[slot] = static_cast<char*>(b.batch[slot].data()) + BatchArrays::Bytes(d);
    b.norms[slot] =
        reinterpret_cast<double*>(b.loss_results[slot] + d.micro_batches * d.shape.loss_bytes());
    b.update_flags[slot] =
        reinterpret_cast<int32_t*>(b.norms[slot] + d.shape.tiles() * d.shape.folds);
  }
  return b;
}

}  // namespace megatrain
