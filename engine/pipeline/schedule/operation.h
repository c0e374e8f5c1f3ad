// Op is an operation of a schedule. Each kind is a struct with the fields that it needs, so that an
// operation has no field of another kind.
//
// In these structs `tile`, `stage` (ModelLayout::stages), `weight_buffer`, `accumulator` and `slab`
// are indices. `micro_batch` counts this rank's micro-batches in the step, `sweep_index` those in
// the sweep. `input_slot` and `output_slot` are slots of hidden states on the device. [begin, end)
// are elements of the tile.
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_OPERATION_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_OPERATION_H_

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "engine/model/cost/layer_work.h"
#include "engine/model/layer/activations.h"
#include "engine/pipeline/schedule/lane.h"

namespace megatrain {

// The kinds of resources that operations read and write. The comments say where each one is, and
// what Resource::index means if it is not the index of the resource's own kind. It is 0 for a kind
// of which there is one. A step slot is one of the kStepSlots in flight (schedule.h).
enum class ResourceKind {
  // A tile's state on the host. Index `tile` stands for the elements that the host updates, and
  // index PipelineShape::device_part(tile) for those that the device updates. Of the weights of
  // tile 1, index host_part(1, i) stands for those that the host updates in part i.
  kTileWeights,  // the section that is streamed
  kTileMoments,  // remainder and moments
  // Host, with whole_loads: the weights of all ranks' shards of a tile. A load may read them from
  // the end of their updates to the reduction that the next updates follow. Index: tile.
  kTileOfRanks,

  kEmbeddingRows,      // host, rows of tile 0's weights that the next step's batch looks up
  kWeightBuffer,       // device
  kFirstTileHostPart,  // device, tile 1's host-updated elements in a buffer (first_tile_in_buffer)
  kAccumulator,        // device, FP32 gradient of one tile, and its sum of squares
  kSlab,               // host, gradient of one tile
  kHidden,             // device, hidden states of one micro-batch at one boundary; index: slot
  kHiddenGradient,     // device, index: micro-batch in the sweep
  kHostStash,          // host, index: stash_slot or embedding_stash_slot
  kKept,               // device, kept activations of one stage and micro-batch; index: kept slot
  kCache,              // device, LayerCache of one layer for generation; index: stage
  kRouted,             // device, RoutedTokens; index: micro-batch in the sweep
  kScratch,            // device, activations and workspace that operations use in turn
  kDeviceBatch,        // device, ids and targets; index: step slot
  kDeviceLosses,       // device, sums of losses; index: step slot
  kHostLosses,         // host; index: step slot
  kHostNorm,           // host; index: step slot * tiles + tile
  kUpdateFlag,         // host, not 0 if the device's update of a tile is not trusted; index: tile
  kClip,               // host, the step's clipping coefficient; index: step slot
  kCheckpoint,         // disk
};

struct Resource {
  ResourceKind kind;
  int index = 0;
};

// --- Lane h2d.

struct UploadBatchOp {  // the slot's BatchArrays -> device
  static constexpr char kName[] = "upload batch";
};
struct LoadTileOp {  // weights of a tile -> weight_buffer
  static constexpr char kName[] = "load tile";
  int tile, weight_buffer;
  int64_t begin, end;
};
struct LoadStashOp {  // host stash -> output_slot
  static constexpr char kName[] = "load stash";
  int stage, sweep_index, output_slot;
};
struct LoadPartialOp {  // slab -> accumulator: the sum over earlier sweeps
  static constexpr char kName[] = "load partial gradient";
  int tile, accumulator, slab;
  int64_t begin, end;
};
struct LoadHiddenGradientOp {  // host stash -> output_slot
  static constexpr char kName[] = "load hidden gradient";
  int micro_batch, output_slot;
};

// --- Lane compute. `first` marks the first micro-batch of a fold (schedule.h) of the gradient. It
// replaces the content of the accumulator.

// The place of a stage's kept activations. An operation without one keeps nothing.
struct KeptActivations {
  int slot;
  KeepLevel level;
};

// The use of the cache in a layer. kFill stores the tokens' keys and values, or states, there, and
// kAttend also goes on from what is there.
enum class CacheUse { kNone, kFill, kAttend };

struct EmbedForwardOp {  // -> output_slot
  static constexpr char kName[] = "embedding forward";
  int micro_batch, output_slot;
  std::optional<int> weight_buffer;  // without one it reads tile 0 in host memory
};
// A dense layer, or the attention half of a layer with experts.
struct LayerForwardOp {  // input_slot -> output_slot
  static constexpr char kName[] = "layer forward";
  int stage, micro_batch, weight_buffer, input_slot, output_slot;
  std::optional<KeptActivations> kept;
  CacheUse cache = CacheUse::kNone;
};
// The four operations of a half with experts (engine/model/experts/expert_half.h), each on one
// micro-batch.
struct RouteOp {  // input_slot -> routed tokens
  static constexpr char kName[] = "route";
  int stage, micro_batch, sweep_index, weight_buffer, input_slot;
  bool backward;  // for the backward pass
  bool totals;    // adds to RouterTotals
};
struct ExpertsForwardOp {  // routed tokens -> routed tokens; the last one: input_slot, routed
                           // tokens -> output_slot
  static constexpr char kName[] = "experts forward";
  int stage, tile, micro_batch, sweep_index, weight_buffer, input_slot, output_slot;
  bool last;      // ends the half; never true where a join follows
  bool backward;  // for the backward pass
};
struct ExpertsBackwardOp {  // routed tokens, hidden gradient -> routed tokens, accumulator
  static constexpr char kName[] = "experts backward";
  int stage, tile, micro_batch, sweep_index, weight_buffer;
  std::optional<int> accumulator;  // none if all of the tile is frozen
  bool first;
};
struct RouterBackwardOp {  // input_slot, routed tokens, hidden gradient -> hidden gradient,
                           // accumulator
  static constexpr char kName[] = "router backward";
  int stage, micro_batch, sweep_index, weight_buffer;
  std::optional<int> accumulator;  // none if all of the tile is frozen
  int input_slot;
  bool first;
  bool input_gradient;  // something before the stage is trained
};
// The end of a half with a dense unit beside the experts (engine/model/experts/expert_join.h).
struct JoinForwardOp {  // input_slot, routed tokens -> output_slot
  static constexpr char kName[] = "join forward";
  int stage, micro_batch, sweep_index, weight_buffer, input_slot, output_slot;
};
struct JoinBackwardOp {  // input_slot, routed tokens, hidden gradient -> routed tokens, hidden
                         // gradient, accumulator
  static constexpr char kName[] = "join backward";
  int stage, micro_batch, sweep_index, weight_buffer;
  std::optional<int> accumulator;  // none if all of the tile is frozen
  int input_slot;
  bool first;
  bool input_gradient;  // something before the stage is trained
};
struct HeadOp {  // input_slot -> losses, hidden gradient, accumulator
  static constexpr char kName[] = "head";
  int tile, micro_batch, sweep_index, weight_buffer;
  std::optional<int> accumulator;  // none if all of the tile is frozen
  int input_slot;
  bool first;
  bool input_gradient;  // something before the head is trained
};
struct HeadLossOp {  // input_slot -> losses (evaluation)
  static constexpr char kName[] = "head loss";
  int micro_batch, weight_buffer, input_slot;
};
struct HeadLogitsOp {  // input_slot -> logits of the tokens asked for, on the host
  static constexpr char kName[] = "head logits";
  int micro_batch, weight_buffer, input_slot;
};
struct LayerBackwardOp {  // input_slot, hidden gradient -> hidden gradient, accumulator
  static constexpr char kName[] = "layer backward";
  int stage, micro_batch, sweep_index, weight_buffer;
  std::optional<int> accumulator;  // none if all of the tile is frozen
  int input_slot;
  bool first;
  std::optional<KeptActivations> kept;
  bool input_gradient;  // something before the stage is trained
};
struct EmbedBackwardOp {  // hidden gradient -> accumulator
  static constexpr char kName[] = "embedding backward";
  int micro_batch, accumulator;
  Resource hidden_gradient;  // kHiddenGradient or kHidden
  bool first;
};
struct ZeroGradientOp {  // of a fold without micro-batches
  static constexpr char kName[] = "zero gradient";
  int tile, accumulator;
};
struct JoinGradientsOp {  // adds one accumulator to another
  static constexpr char kName[] = "join gradients";
  int tile, accumulator, addend;
};
struct FinishGradientOp {  // sums of squares of the rank's blocks; rounds a BF16 gradient
  static constexpr char kName[] = "finish gradient";
  int tile, accumulator;
};

// --- Lane collective, of several ranks.

struct AwaitUpdatesOp {  // waits until every rank's shard of the tile in host memory is updated
  static constexpr char kName[] = "await updates";
  int tile;
};
struct GatherWeightsOp {  // the rank's elements of a weight buffer -> all of them
  static constexpr char kName[] = "gather weights";
  int tile, weight_buffer;
};
struct ReduceGradientOp {  // accumulator -> the rank's elements of the sum over all ranks
  static constexpr char kName[] = "reduce gradient";
  int tile, accumulator;
};

// --- Lane d2h.

struct StoreStashOp {  // input_slot -> host stash
  static constexpr char kName[] = "store stash";
  int stage, micro_batch, sweep_index, input_slot;
};
struct StoreNormOp {  // sums of squares of an accumulator -> host
  static constexpr char kName[] = "store gradient norm";
  int tile, accumulator;
};
struct StoreGradientOp {  // accumulator -> slab: the part of the shard that is updated from there
  static constexpr char kName[] = "store gradient";
  int tile, accumulator, slab;
};
struct StorePartialOp {  // accumulator -> slab: the FP32 sum over the sweeps so far
  static constexpr char kName[] = "store partial gradient";
  int tile, accumulator, slab;
};
struct StoreHiddenGradientOp {  // hidden gradient -> host stash
  static constexpr char kName[] = "store hidden gradient";
  int micro_batch, sweep_index;
};
struct StoreLossesOp {  // sums of losses, or the results of pairs -> host
  static constexpr char kName[] = "store losses";
};

// --- Lane update.

struct ShareResultsOp {  // replaces the losses or norms of a rank by those of all ranks
  static constexpr char kName[] = "share results";
  bool losses, norms;
};
struct CheckLossesOp {  // fails if a loss is not finite, before any update on the host
  static constexpr char kName[] = "check losses";
};
struct ClipOp {  // fails if a loss or norm is not finite; computes the step's clipping coefficient
  static constexpr char kName[] = "clip";
};
// AdamW for the rows of tile 0 that the next step's batch looks up, or for all of the tile if that
// batch is not known yet.
struct UpdateRowsOp {
  static constexpr char kName[] = "update rows";
  int slab;
};
// AdamW for elements [begin, end) of a tile, of tile 0 without the rows that UpdateRowsOp updates.
struct UpdateTileOp {
  static constexpr char kName[] = "update tile";
  int tile, slab;
  int64_t begin, end;
};
struct CheckUpdatesOp {  // fails if a device update is not trusted, before a checkpoint reads it
  static constexpr char kName[] = "check updates";
};

// --- The lanes of device updates.

struct BeginDeviceUpdateOp {  // clears the update flag
  static constexpr char kName[] = "begin device update";
  int tile;
};
struct DeviceUpdateOp {  // loads the state of a piece of a tile, runs AdamW, stores the state
  static constexpr char kName[] = "device update";
  int tile;
  int64_t begin, end;
  Resource gradient;                 // kSlab or kAccumulator
  std::optional<int> weight_buffer;  // keeps the updated weights
};
struct EndDeviceUpdateOp {  // update flag -> host
  static constexpr char kName[] = "end device update";
  int tile;
};

// --- Lane io.

struct SaveTileOp {  // calls SaveCalls::take_tile (step_runner.h)
  static constexpr char kName[] = "save tile";
  int tile;
};
struct FinishCheckpointOp {  // calls SaveCalls::finish
  static constexpr char kName[] = "finish checkpoint";
};

using AnyOp =
    std::variant<UploadBatchOp, LoadTileOp, LoadStashOp, LoadPartialOp, LoadHiddenGradientOp,
                 EmbedForwardOp, LayerForwardOp, RouteOp, ExpertsForwardOp, ExpertsBackwardOp,
                 RouterBackwardOp, JoinForwardOp, JoinBackwardOp, HeadOp, HeadLossOp, HeadLogitsOp,
                 LayerBackwardOp, EmbedBackwardOp, ZeroGradientOp, JoinGradientsOp,
                 FinishGradientOp, AwaitUpdatesOp, GatherWeightsOp, ReduceGradientOp, StoreStashOp,
                 StoreNormOp, StoreGradientOp, StorePartialOp, StoreHiddenGradientOp, StoreLossesOp,
                 ShareResultsOp, CheckLossesOp, ClipOp, UpdateRowsOp, UpdateTileOp, CheckUpdatesOp,
                 BeginDeviceUpdateOp, DeviceUpdateOp, EndDeviceUpdateOp, SaveTileOp,
                 FinishCheckpointOp>;

// An operation, its lane, and its resources.
struct Op {
  AnyOp what;
  Lane lane;
  int step_slot;  // the step's slot among the kStepSlots in flight
  // Bytes that the operation copies, receives from other ranks, updates or saves. StepRunner takes
  // the length of most copies from here. Predictions divide the bytes by the lane's rate.
  int64_t bytes = 0;
  LayerWork work;  // the work of an operation on the compute lane, used there instead of `bytes`
  // Bytes that an operation copies over the link although it is not on the lane h2d or d2h.
  int64_t h2d_bytes = 0, d2h_bytes = 0;
  absl::InlinedVector<Resource, 4> reads;
  absl::InlinedVector<Resource, 3> writes;

  Op(const AnyOp& op, Lane on_lane, int slot = 0) : what(op), lane(on_lane), step_slot(slot) {}
  template <typename Kind>
  bool is() const {
    return std::holds_alternative<Kind>(what);
  }
  // Returns the fields of an operation of this kind, and nullptr for another kind.
  template <typename Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&what);
  }
  // Returns the name for messages and traces: "load tile", "layer forward".
  const char* name() const {
    return std::visit([](const auto& kind) { return kind.kName; }, what);
  }
  // Returns true if the operation changes the model's state on the host, or announces that
  // DeviceUpdateOps will change it. A step can be given up only until the first such operation has
  // started.
  bool ChangesState() const {
    return is<UpdateRowsOp>() || is<UpdateTileOp>() || is<BeginDeviceUpdateOp>();
  }
  // Return true if the operation is a part of the forward pass through the layers (with the
  // embedding, without the head), or of the backward pass through them (without both).
  bool IsLayersForward() const {
    const RouteOp* const route = as<RouteOp>();
    const ExpertsForwardOp* const experts = as<ExpertsForwardOp>();
    return is<EmbedForwardOp>() || is<LayerForwardOp>() || is<JoinForwardOp>() ||
           (experts != nullptr && !experts->backward) || (route != nullptr && !route->backward);
  }
  bool IsLayersBackward() const {
    const RouteOp* const route = as<RouteOp>();
    const ExpertsForwardOp* const experts = as<ExpertsForwardOp>();
    return is<LayerBackwardOp>() || is<ExpertsBackwardOp>() || is<RouterBackwardOp>() ||
           is<JoinBackwardOp>() || (experts != nullptr && experts->backward) ||
           (route != nullptr && route->backward);
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_OPERATION_H_
