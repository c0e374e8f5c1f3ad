// Computes the sizes of all buffers of a step and reserves them: device memory in the device arena,
// host memory (the tiles included) in the host pool. The plan counts device bytes by a dry run,
// which is ReserveDeviceBuffers on an arena without a block.
#ifndef MEGATRAIN_ENGINE_PIPELINE_BUFFERS_H_
#define MEGATRAIN_ENGINE_PIPELINE_BUFFERS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/device/kernel_sizes.h"
#include "engine/memory/device_arena.h"
#include "engine/memory/host_pool.h"
#include "engine/model/experts/expert_half.h"
#include "engine/model/head/language_head.h"
#include "engine/model/layer/decoder_layer.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"
#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

// The numbers that determine the size of every buffer.
struct PipelineDimensions {
  const ModelLayout* layout = nullptr;  // must outlive this
  PipelineShape shape;
  // The processes of the job. The ranks are divided evenly among them, in order. In a plan
  // shape.rank is the first rank of this process.
  int processes = 1;
  DType dtype = DType::kF32;           // weights streamed and activations
  DType gradient_dtype = DType::kF32;  // across the link and on the host
  int64_t sequence_length = 0;
  int64_t micro_batch_tokens = 0;  // the most tokens of a micro-batch
  int micro_batches = 0;           // the most micro-batches of a rank in a step
  int64_t step_tokens = 0;         // of all ranks, padding included; no buffer depends on it
  int64_t head_chunk_tokens = 0;   // HeadChunkTokens
  int64_t layer_chunk_tokens = 0;  // LayerChunkTokens; in generation kPromptChunkTokens at most
  bool training = true;            // false: forward only (generate, evaluate)
  // The tokens of all sequences whose keys and values are kept for generation; 0 if none are.
  int64_t cache_rows = 0;
  // The sequences in the cache. They are at most micro_batches, because the prompt of each is a
  // micro-batch.
  int64_t cache_sequences = 0;
  // Device memory is reserved for updates on the device. Must be true if the device makes any.
  bool device_updates = false;
  // Device memory of a rank beside the arena, through which it exchanges with other GPUs; 0 for a
  // rank alone, and on the cpu device.
  int64_t exchange_bytes = 0;
  // Host memory of a process beside the pool, for a whole tile of which ranks hold parts; 0 for a
  // rank alone, and if the job reads none.
  int64_t whole_tile_bytes = 0;

  int local_ranks() const { return shape.ranks / processes; }  // the ranks of a process
  // Returns how many parts a process has of each tile. Without training every rank reads all of it.
  int tile_parts() const { return training ? local_ranks() : 1; }
  // Returns the elements of a tile that a rank of a training job holds; any rank of the job.
  HeldElements held(int tile, int rank) const {
    return {{shape.shard_cut(tile, rank), shape.shard_cut(tile, rank + 1)},
            {shape.stateless_cut(tile, rank), shape.stateless_cut(tile, rank + 1)}};
  }
  int64_t hidden_bytes() const {  // hidden states of one micro-batch between two layers
    return micro_batch_tokens * layout->model.hidden * DTypeBytes(dtype);
  }
  // Returns the bytes of the layer's key-value cache.
  int64_t cache_layer_bytes(int layer) const {
    return LayerCacheBytes(layout->model.layers[static_cast<size_t>(layer)], dtype,
                           {.rows = cache_rows, .sequences = cache_sequences});
  }
  // Returns the pairs of answers that a micro-batch holds at most; 0 without pairs.
  int64_t pairs_max() const { return shape.pairs_max(micro_batch_tokens); }
  // Returns the number of micro-batches whose gradient by the embedding's output is kept on the
  // host until the last sweep.
  int embedding_stash_micro_batches() const {
    if (!shape.tied || !shape.embedding_trained) return 0;
    return (micro_batches - 1) / shape.sweep_micro_batches * shape.sweep_micro_batches;
  }
  // Returns a bound on the elements of one update operation on the device; 0 without
  // device_updates. It is the same for every share of the updates, so that the share can be chosen
  // when the memory is known.
  int64_t update_piece_elements() const {
    if (!device_updates) return 0;
    int64_t elements = 0;
    for (int tile = 1; tile < shape.tiles(); ++tile) {
      elements = std::max(elements, shape.state_elements(tile));
    }
    return std::min(elements, shape.device_piece_elements);
  }
  // Returns the bytes of an element of a gradient slab. Partial sums are kept in FP32.
  int64_t slab_element_bytes() const {
    const bool partials = micro_batches > shape.sweep_micro_batches;
    return partials ? 4 : DTypeBytes(gradient_dtype);
  }
};

// One step's batch in one block, written by StepRunner::PrepareBatch. Batch (batch.h) says what the
// arrays hold, and WriteDocumentBounds what document_bounds does. Each array is
// [micro_batches][micro_batch_tokens], document_bounds [micro_batches][micro_batch_tokens][2]. The
// last two are for pairs of answers and have [micro_batches][pairs_max()] rows.
struct BatchArrays {
  int32_t* ids = nullptr;
  int32_t* positions = nullptr;
  int32_t* targets = nullptr;
  int32_t* sorted_positions = nullptr;
  int32_t* document_bounds = nullptr;
  int32_t* first_rows = nullptr;      // null if there is no cache
  int32_t* state_rows = nullptr;      // null if there is no cache
  double* reference_logps = nullptr;  // rows of 2
  int32_t* pair_bounds = nullptr;     // rows of 4

  // Returns how many 32-bit integers the arrays have for a token.
  static int64_t TokenIntegers(const PipelineDimensions& d) { return d.cache_rows > 0 ? 8 : 6; }
  // Returns the bytes of the block.
  static int64_t Bytes(const PipelineDimensions& d) {
    const int64_t bytes =
        d.micro_batches * (TokenIntegers(d) * int64_t{sizeof(int32_t)} * d.micro_batch_tokens +
                           d.pairs_max() * kPairBytes);
    return (bytes + 7) / 8 * 8;  // doubles follow
  }
  // Returns pointers into `block`, which has Bytes(d) bytes at a multiple of 8 and must outlive the
  // result.
  static BatchArrays At(void* block, const PipelineDimensions& d) {
    const int64_t n = d.micro_batches * d.micro_batch_tokens;
    double* const logps = static_cast<double*>(block);  // first, as it has the largest alignment
    int32_t* const ids = reinterpret_cast<int32_t*>(logps + 2 * d.micro_batches * d.pairs_max());
    return {ids,
            ids + n,
            ids + 2 * n,
            ids + 3 * n,
            ids + 4 * n,
            d.cache_rows > 0 ? ids + 6 * n : nullptr,
            d.cache_rows > 0 ? ids + 7 * n : nullptr,
            logps,
            ids + TokenIntegers(d) * n};
  }
};

// Pointers into the arena's block; null if the arena has none. T is PipelineDimensions::dtype.
// Without training what only a backward pass or an update needs is null or empty.
struct DeviceBuffers {
  std::vector<void*> weights;          // weight buffers of tile_elements_max elements each
  std::vector<float*> accumulators;    // PipelineShape::accumulators
  std::vector<void*> hidden;           // T [micro_batch_tokens, hidden] each
  std::vector<void*> hidden_gradient;  // T, one for each micro-batch of the sweep
  std::vector<void*> kept;             // by kept slot
  std::vector<void*> routed;           // RoutedBytes, by micro-batch of the sweep
  std::vector<void*> shared;  // SharedRowsBytes, by micro-batch of the sweep; empty if that is 0
  // [micro_batches][PerLayerInputDescription::width], SharedRows::per_layer_norm_gradient; null if
  // it is not trained.
  float* per_layer_norm_gradient = nullptr;
  // By layer: LayerCache::data. A layer without keys of its own has that of their maker.
  std::vector<void*> cache;
  void* layer_scratch = nullptr;  // LayerScratchBytes
  // Memory that operations use in turn: a chunk of a layer, of the head or of experts, or the
  // workspace of attention's gradient. backward.workspace, `head` and `experts` point into it.
  void* work = nullptr;
  LayerBackwardScratch backward;
  HeadScratch head;
  ExpertScratch experts;
  float* losses = nullptr;                   // [micro_batch_tokens]
  std::array<void*, kStepSlots> batch = {};  // BatchArrays
  // double [micro_batches], sums of losses; with pairs PreferenceResult
  // [micro_batches][pairs_max()].
  std::array<char*, kStepSlots> loss_results = {};
  float* loss_weights = nullptr;  // [micro_batch_tokens]; with pairs only
  double* norms = nullptr;        // [accumulators][folds], sums of squares of the rank's blocks
  // For each device update lane: the state of a piece (a Tile without a layout) and, with clipping,
  // its gradient. Null without updates on the device.
  std::array<Tile, kDeviceUpdateLanes> update_state = {};
  std::array<void*, kDeviceUpdateLanes> update_gradient = {};
  int32_t* update_flags = nullptr;  // [tiles], not 0 if an update cannot be trusted
  // By ModelDescription::ropes, of sequence_length positions. The caller fills them (rope.h).
  std::vector<RopeTable> ropes;
};

// Reserves all buffers in `arena`. Their content is undefined. `sizes` are those of the device's
// kernels. Returns ResourceExhausted, naming the first piece that does not fit. The arena's block
// must outlive the result.
absl::StatusOr<DeviceBuffers> ReserveDeviceBuffers(const PipelineDimensions& d,
                                                   const KernelSizes& sizes, DeviceArena& arena);

// The buffers of a rank beside the tiles.
struct HostBuffers {
  // [shape.gradient_slabs], each of slab_element_bytes() an element of a shard.
  std::vector<HostLease> slabs;
  // One for each stage that the backward pass reaches, the lowest first:
  // [sweep_micro_batches][micro_batch_tokens, hidden]. Empty if the stash is on the device.
  std::vector<HostLease> stash;
  // [embedding_stash_micro_batches()][micro_batch_tokens, hidden]
  HostLease embedding_stash;
  // BatchArrays, then loss_results, norms and update_flags, which point into it.
  std::array<HostLease, kStepSlots> batch;
  std::array<char*, kStepSlots> loss_results = {};     // as DeviceBuffers::loss_results
  std::array<double*, kStepSlots> norms = {};          // [tiles][folds]
  std::array<int32_t*, kStepSlots> update_flags = {};  // [tiles], set by device updates
};

// Returns, by HostKind, the bytes of the pool that one LeaseTiles and the LeaseHostBuffers of all
// ranks of a process take. They are the same in all processes.
std::array<int64_t, kHostKinds> HostBufferBytes(const PipelineDimensions& d);
// Leases the blocks of a process's tiles: by tile, that of each part in turn. nodes[i] is the NUMA
// node of the device whose part is i, for tile_parts() parts. Here and below: a node is -1 if it is
// not known, `pool` must outlive the result, and the content is undefined. Returns the error of
// HostPool::Lease (ResourceExhausted) if there is no room; nothing is leased then.
absl::StatusOr<std::vector<HostLease>> LeaseTiles(const PipelineDimensions& d,
                                                  absl::Span<const int> nodes, HostPool& pool);
// Leases the other buffers of one rank, whose device's node is `node`. Errors are as above.
absl::StatusOr<HostBuffers> LeaseHostBuffers(const PipelineDimensions& d, int node, HostPool& pool);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_BUFFERS_H_
