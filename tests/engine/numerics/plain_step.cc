#include "tests/engine/numerics/plain_step.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "engine/base/status.h"
#include "engine/data/sequences/document_bounds.h"
#include "engine/device/device.h"
#include "engine/model/experts/expert_half.h"
#include "engine/model/experts/expert_join.h"
#include "engine/model/head/language_head.h"
#include "engine/model/layer/decoder_layer.h"
#include "engine/model/rope.h"

namespace megatrain {
namespace {

bf16_t RoundAwayFromZero(float value) {
  return static_cast<bf16_t>((std::bit_cast<uint32_t>(value) + 0x8000u) >> 16);
}

// Zeroed memory of the cpu device, aligned as the engine's own.
class Buffers {
 public:
  template <typename T>
  T* Make(int64_t count) {
    constexpr int64_t kPage = 4096;
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, std::max(bytes, kPage));
    std::memset(memory, 0, std::max(bytes, kPage));
    blocks_.emplace_back(memory, &std::free);
    return static_cast<T*>(memory);
  }
  void* Bytes(int64_t bytes) { return Make<char>(bytes); }

 private:
  std::vector<std::unique_ptr<void, decltype(&std::free)>> blocks_;
};

void* PlaceWeights(const TileLayout& tile, const NamedTensors& weights, DType dtype,
                   Buffers& buffers) {
  void* block = buffers.Bytes(tile.elements * DTypeBytes(dtype));
  for (const TensorSpec& tensor : tile.tensors) {
    const float* const values = weights.at(tensor.name_on_disk()).data();
    if (tensor.is_buffer) {
      std::memcpy(static_cast<char*>(block) + tensor.offset * DTypeBytes(dtype), values,
                  static_cast<size_t>(tensor.elements) * sizeof(float));
      continue;
    }
    for (const TensorRun& run : RunsOf(tensor)) {
      for (int64_t i = 0; i < run.elements; ++i) {
        const int64_t place = tensor.offset + run.place + i;
        if (dtype == DType::kF32) {
          static_cast<float*>(block)[place] = values[run.source + i];
        } else {
          static_cast<bf16_t*>(block)[place] = RoundAwayFromZero(values[run.source + i]);
        }
      }
    }
  }
  return block;
}

// Device copies and the host's list of documents of one micro-batch.
struct MicroBatch {
  std::vector<int32_t> ids, positions, targets, sorted_positions, document_starts, document_bounds;

  explicit MicroBatch(const std::vector<Sequence>& sequences) {
    for (const Sequence& s : sequences) {
      for (size_t t = 0; t < s.input_ids.size(); ++t) {
        if (t == 0 || s.document_ids[t] != s.document_ids[t - 1]) {
          document_starts.push_back(static_cast<int32_t>(ids.size()));
        }
        const bool predicts = t + 1 < s.input_ids.size() && s.document_ids[t] >= 0 &&
                              s.document_ids[t + 1] == s.document_ids[t];
        targets.push_back(predicts ? s.labels[t + 1] : kMaskedLabel);
        ids.push_back(s.input_ids[t]);
        positions.push_back(s.position_ids[t]);
      }
    }
    document_starts.push_back(static_cast<int32_t>(ids.size()));
    document_bounds.resize(2 * ids.size());
    WriteDocumentBounds(document_starts, document_bounds.data());
    sorted_positions.resize(ids.size());
    std::iota(sorted_positions.begin(), sorted_positions.end(), 0);
    std::stable_sort(sorted_positions.begin(), sorted_positions.end(),
                     [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  }

  MicroBatchView View() const {
    MicroBatchView view;
    view.tokens = static_cast<int64_t>(ids.size());
    view.ids = ids.data();
    view.positions = positions.data();
    view.targets = targets.data();
    view.sorted_positions = sorted_positions.data();
    view.document_bounds = document_bounds.data();
    view.document_starts = document_starts.data();
    view.documents = static_cast<int64_t>(document_starts.size()) - 1;
    return view;
  }
};

// The experts of one micro-batch, and what they work in.
struct Experts {
  Experts(const ModelLayout& layout, DType dtype, int64_t tokens, int64_t chunk_tokens,
          Buffers& buffers)
      : scratch(PlaceExpertScratch(
            layout.model, dtype, chunk_tokens,
            buffers.Bytes(ExpertScratchBytes(layout.model, dtype, chunk_tokens)))),
        routed(PlaceRouted(layout.model, dtype, tokens,
                           buffers.Bytes(RoutedBytes(layout.model, dtype, tokens)))) {
    routed.offsets = routed.device_offsets;
  }

  absl::Status Forward(LayerContext context, const Stage& stage, const std::vector<void*>& tiles,
                       const MicroBatchView& view, const void* x, void* y) const {
    MT_RETURN_IF_ERROR(RouteTokens(context, tiles[stage.tile], view, x, scratch, routed, false,
                                   RoutingTotals::kEntropy));
    for (int i = 0; i < stage.expert_tiles; ++i) {
      MT_RETURN_IF_ERROR(ExpertsForward(context, tiles[++context.tile], view, scratch, routed));
    }
    if (!stage.joins) return FinishExperts(context, view, x, routed, y);
    context.tile = stage.join_tile();
    return JoinForward(context, tiles[context.tile], view, x, scratch, routed, y);
  }

  absl::Status Backward(LayerContext context, const Stage& stage, const std::vector<void*>& tiles,
                        const MicroBatchView& view, const void* x, void* dh,
                        const std::vector<float*>& gradients, bool first) const {
    MT_RETURN_IF_ERROR(RouteTokens(context, tiles[stage.tile], view, x, scratch, routed, true,
                                   RoutingTotals::kNone));
    if (stage.joins) {
      for (int i = 0; i < stage.expert_tiles; ++i) {
        MT_RETURN_IF_ERROR(ExpertsForward(context, tiles[++context.tile], view, scratch, routed));
      }
      context.tile = stage.join_tile();
      MT_RETURN_IF_ERROR(JoinBackward(context, tiles[context.tile], view, x, scratch, routed, dh,
                                      gradients[context.tile], first, /*input_gradient=*/true));
      context.tile = stage.tile;
    }
    for (int i = 0; i < stage.expert_tiles; ++i) {
      ++context.tile;
      MT_RETURN_IF_ERROR(ExpertsBackward(context, tiles[context.tile], view, scratch, routed,
                                         stage.joins ? routed.dsum : dh, gradients[context.tile],
                                         first));
    }
    context.tile = stage.tile;
    return RouterBackward(context, tiles[stage.tile], view, x, scratch, routed, dh,
                          /*dprobabilities=*/nullptr, gradients[stage.tile], first,
                          /*input_gradient=*/true);
  }

  const ExpertScratch scratch;
  RoutedTokens routed;
};

absl::Status Run(Kernels& kernels, const ModelLayout& layout, const NamedTensors& weights,
                 DType dtype, const ReferenceBatch& batch, int64_t sequences_per_micro_batch,
                 KeepLevel level, int64_t chunk_tokens, PlainStepResult* result) {
  const ModelDescription& model = layout.model;
  const int64_t element = DTypeBytes(dtype);
  const size_t stages = layout.stages.size();
  const int64_t length = static_cast<int64_t>(batch.sequences[0].input_ids.size());
  const int64_t tokens_max = sequences_per_micro_batch * length;
  Stream stream;  // work is done when a call returns

  Buffers buffers;
  std::vector<void*> tiles;
  std::vector<float*> gradients;
  for (const TileLayout& tile : layout.tiles) {
    tiles.push_back(PlaceWeights(tile, weights, dtype, buffers));
    gradients.push_back(buffers.Make<float>(tile.elements));
    // The first sum is written, not added.
    std::fill_n(gradients.back(), tile.elements, std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<RopeTable> ropes;
  for (const RopeConfig& rope : model.ropes) {
    ropes.push_back({buffers.Make<float>(length * rope.rotary_dim / 2),
                     buffers.Make<float>(length * rope.rotary_dim / 2)});
    RopeTables(rope, length, 0, length, ropes.back().cosine, ropes.back().sine);
  }

  LayerContext context;
  context.layout = &layout;
  context.dtype = dtype;
  context.kernels = &kernels;
  context.stream = &stream;
  context.ropes = ropes;
  context.chunk_tokens = chunk_tokens > 0 ? chunk_tokens : LayerChunkTokens(tokens_max);

  LayerBackwardScratch backward;
  const LayerBackwardWidths widths = BackwardWidths(model);
  backward.dmixed = buffers.Bytes(tokens_max * widths.mixed * element);
  backward.dprojected = buffers.Bytes(tokens_max * widths.projected * element);
  backward.dper_layer = backward.dprojected;
  backward.dexpanded = buffers.Bytes(tokens_max * widths.expanded * element);
  backward.workspace_bytes = AttentionWorkspaceBytes(model, dtype, tokens_max, tokens_max, kernels);
  void* chunk = buffers.Bytes(
      std::max(backward.workspace_bytes, LayerChunkBytes(model, dtype, context.chunk_tokens)));
  backward.workspace = chunk;
  const Experts experts(layout, dtype, tokens_max, context.chunk_tokens, buffers);
  HeadScratch head;
  head.chunk_tokens = 64;  // several chunks a micro-batch
  head.logits = buffers.Make<float>(head.chunk_tokens * model.vocabulary);
  head.normed = buffers.Bytes(head.chunk_tokens * model.hidden * element);
  head.rstd = buffers.Make<float>(head.chunk_tokens);
  float* losses = buffers.Make<float>(tokens_max);
  void* shared = buffers.Bytes(SharedRowsBytes(model, dtype, tokens_max, /*training=*/true));
  const int64_t per_layer = model.layers.front().per_layer_input.width;
  float* const norm_gradient = per_layer > 0 ? buffers.Make<float>(per_layer) : nullptr;
  void* scratch = buffers.Bytes(LayerScratchBytes(model, dtype, tokens_max));
  std::vector<void*> kept(stages), states(stages + 1);
  for (void*& block : kept) block = buffers.Bytes(KeptBytes(model, dtype, tokens_max, level) + 1);
  for (void*& state : states) state = buffers.Bytes(tokens_max * model.hidden * element);

  const size_t count = batch.sequences.size();
  for (size_t first = 0; first < count; first += sequences_per_micro_batch) {
    const size_t end = std::min(count, first + sequences_per_micro_batch);
    const MicroBatch micro_batch(
        std::vector<Sequence>(batch.sequences.begin() + first, batch.sequences.begin() + end));
    MicroBatchView view = micro_batch.View();
    view.shared = PlaceSharedRows(model, dtype, tokens_max, /*training=*/true, shared);
    view.shared.per_layer_norm_gradient = norm_gradient;
    const auto activations = [&](size_t stage) {
      return PlaceActivations(model, layout.stages[stage].layer, dtype, tokens_max,
                              context.chunk_tokens, level, kept[stage], scratch, chunk);
    };
    MT_RETURN_IF_ERROR(EmbeddingForward(context, tiles[0], view, states[0]));
    for (size_t i = 0; i < layout.stages.size(); ++i) {
      const Stage& stage = layout.stages[i];
      context.layer = stage.layer;
      context.tile = stage.tile;
      if (stage.kind == StageKind::kExperts) {
        MT_RETURN_IF_ERROR(experts.Forward(context, stage, tiles, view, states[i], states[i + 1]));
        continue;
      }
      const auto forward =
          stage.kind == StageKind::kLayer ? DecoderLayerForward : AttentionStageForward;
      MT_RETURN_IF_ERROR(
          forward(context, tiles[stage.tile], view, states[i], activations(i), states[i + 1]));
    }
    const auto keep_logits = [&](int64_t, int64_t tokens, const float* logits) {
      result->logits.insert(result->logits.end(), logits, logits + tokens * model.vocabulary);
      CapLogits(
          model,
          absl::MakeSpan(result->logits).last(static_cast<size_t>(tokens * model.vocabulary)));
      return absl::OkStatus();
    };
    MT_RETURN_IF_ERROR(HeadLogits(context, tiles[layout.head_tile], states[stages], 0, view.tokens,
                                  head, keep_logits));
    void* dh = states[stages];
    MT_RETURN_IF_ERROR(HeadForwardBackward(context, tiles[layout.head_tile], view, states[stages],
                                           1.0f / batch.predictions, head, losses, dh,
                                           gradients[layout.head_tile], first == 0));
    for (int64_t t = 0; t < view.tokens; ++t) result->loss += losses[t];
    for (size_t i = layout.stages.size(); i-- > 0;) {
      const Stage& stage = layout.stages[i];
      context.layer = stage.layer;
      context.tile = stage.tile;
      if (stage.kind == StageKind::kExperts) {
        MT_RETURN_IF_ERROR(
            experts.Backward(context, stage, tiles, view, states[i], dh, gradients, first == 0));
        continue;
      }
      MT_RETURN_IF_ERROR(DecoderLayerBackward(context, tiles[stage.tile], view, states[i],
                                              activations(i), backward, dh, gradients[stage.tile],
                                              first == 0));
    }
    MT_RETURN_IF_ERROR(EmbeddingBackward(context, view, dh, gradients[0], first == 0));
  }
  result->loss /= static_cast<double>(batch.predictions);
  ForEachTensor(layout, [&](int tile, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    const float* begin = gradients[tile] + tensor.offset;
    std::vector<float>& whole = result->gradients[tensor.name];
    whole.resize(static_cast<size_t>(tensor.whole_elements()));
    for (const TensorRun& run : RunsOf(tensor)) {
      std::copy_n(begin + run.place, run.elements, whole.begin() + run.source);
    }
  });
  return absl::OkStatus();
}

}  // namespace

PlainStepResult PlainStep(Kernels& kernels, const ModelLayout& layout, const NamedTensors& weights,
                          DType dtype, const ReferenceBatch& batch,
                          int64_t sequences_per_micro_batch, KeepLevel level,
                          int64_t chunk_tokens) {
  PlainStepResult result;
  result.status = Run(kernels, layout, weights, dtype, batch, sequences_per_micro_batch, level,
                      chunk_tokens, &result);
  return result;
}

}  // namespace megatrain
