#include "engine/pipeline/step_runner.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {

std::string TileName(const TileLayout& tile) {
  switch (tile.kind) {
    case TileKind::kEmbedding:
      return "embedding";
    case TileKind::kTiedEmbedding:
      return "embedding and head";
    case TileKind::kLayer:
      return absl::StrCat("layer ", tile.layer);
    case TileKind::kHead:
      return "head";
  }
  return "tile";
}

absl::Status StepRunner::PrepareBatch(int slot, const Batch& batch) {
  const PipelineDimensions& d = *p_.dimensions;
  MT_RETURN_IF_ERROR(CheckTokenIds(batch, d.layout->config.vocabulary));
  const BatchArrays arrays = BatchArrays::At(p_.host_buffers->batch[slot].data(), d);
  StepState& state = states_[slot];
  state = StepState{};
  state.step = batch.step;
  state.predictions = batch.predictions;
  state.micro_batch_tokens = batch.micro_batch_tokens;
  state.document_starts = batch.document_starts;
  int64_t first = 0;  // the micro-batch's first token
  for (size_t m = 0; m < state.micro_batch_tokens.size(); ++m) {
    const int64_t base = static_cast<int64_t>(m) * d.micro_batch_tokens;
    const int64_t tokens = state.micro_batch_tokens[m];
    std::copy_n(batch.ids.begin() + first, tokens, arrays.ids + base);
    std::copy_n(batch.positions.begin() + first, tokens, arrays.positions + base);
    std::copy_n(batch.targets.begin() + first, tokens, arrays.targets + base);
    std::copy_n(batch.sorted_positions.begin() + first, tokens, arrays.sorted_positions + base);
    const std::vector<int32_t>& starts = state.document_starts[m];
    int32_t* bounds = arrays.document_bounds + 2 * base;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      for (int32_t t = starts[i]; t < starts[i + 1]; ++t) {
        *bounds++ = starts[i];
        *bounds++ = starts[i + 1];
      }
    }
    first += tokens;
  }
  if (d.training && d.shape.embedding_from_host) FindRows(slot);
  for (int i = 0; i < static_cast<int>(state.micro_batch_tokens.size()); ++i) {
    PrepareDecoderLayer(Context(nullptr), View(slot, i),
                        d.training ? p_.device_buffers->backward.workspace_bytes : 0);
  }
  return absl::OkStatus();
}

MicroBatchView StepRunner::View(int slot, int micro_batch) const {
  const PipelineDimensions& d = *p_.dimensions;
  const StepState& state = states_[slot];
  const BatchArrays arrays = BatchArrays::At(p_.device_buffers->batch[slot], d);
  const int64_t base = micro_batch * d.micro_batch_tokens;
  const std::vector<int32_t>& starts = state.document_starts[micro_batch];
  MicroBatchView view;
  view.tokens = state.micro_batch_tokens[micro_batch];
  view.ids = arrays.ids + base;
  view.positions = arrays.positions + base;
  view.targets = arrays.targets + base;
  view.sorted_positions = arrays.sorted_positions + base;
  view.document_bounds = arrays.document_bounds + 2 * base;
  view.document_starts = starts.data();
  view.documents = static_cast<int64_t>(starts.size()) - 1;
  return view;
}

LayerContext StepRunner::Context(Stream* stream) const {
  LayerContext context;
  context.layout = p_.dimensions->layout;
  context.dtype = p_.dimensions->dtype;
  context.attention = p_.attention;
  context.kernels = &p_.device->kernels();
  context.stream = stream;
  context.rope_cosine = p_.device_buffers->rope_cosine;
  context.rope_sine = p_.device_buffers->rope_sine;
  context.chunk_tokens = p_.dimensions->layer_chunk_tokens;
  return context;
}

void* StepRunner::StashData(const Op& op) const {
  return static_cast<char*>(p_.host_buffers->stash[op.layer].data()) +
         op.sweep_index * p_.dimensions->hidden_bytes();
}

void* StepRunner::EmbeddingStashData(const Op& op) const {
  return static_cast<char*>(p_.host_buffers->embedding_stash.data()) +
         op.micro_batch * p_.dimensions->hidden_bytes();
}

absl::Status StepRunner::Copy(const Op& op, Stream& stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  switch (op.kind) {
    case OpKind::kLoadStash:
      return p_.device->CopyToDevice(stream, b.hidden[op.output_slot], StashData(op), op.bytes);
    case OpKind::kLoadPartial:
      return p_.device->CopyToDevice(
          stream, b.accumulators[op.accumulator] + op.begin,
          reinterpret_cast<const float*>(p_.host_buffers->slabs[op.slab].data()) + op.begin,
          op.bytes);
    case OpKind::kLoadHiddenGradient:
      return p_.device->CopyToDevice(stream, b.hidden[op.output_slot], EmbeddingStashData(op),
                                     op.bytes);
    case OpKind::kStoreHiddenGradient:
      return p_.device->CopyToHost(stream, EmbeddingStashData(op),
                                   b.hidden_gradient[op.sweep_index], op.bytes);
    case OpKind::kStoreStash:
      return p_.device->CopyToHost(stream, StashData(op), b.hidden[op.input_slot], op.bytes);
    case OpKind::kStoreNorm:
      return p_.device->CopyToHost(stream, p_.host_buffers->norms[op.step_slot] + op.tile,
                                   b.norms + op.accumulator, op.bytes);
    case OpKind::kStoreGradient:
    case OpKind::kStorePartial:
      return p_.device->CopyToHost(stream, p_.host_buffers->slabs[op.slab].data(),
                                   b.accumulators[op.accumulator], op.bytes);
    case OpKind::kStoreLosses:
      return p_.device->CopyToHost(stream, p_.host_buffers->loss_sums[op.step_slot],
                                   b.loss_sums[op.step_slot], op.bytes);
    case OpKind::kEndDeviceUpdate:
      return p_.device->CopyToHost(stream, p_.host_buffers->update_flags[op.step_slot] + op.tile,
                                   b.update_flags + op.tile, sizeof(int32_t));
    default:
      return absl::InternalError(absl::StrCat(OpKindName(op.kind), " is not a copy"));
  }
}

absl::Status StepRunner::Run(const Op& op, Stream* stream) {
  switch (op.kind) {
    case OpKind::kUploadBatch:
      return Upload(op, *stream);
    case OpKind::kLoadTile:
      return LoadTile(op, *stream);
    case OpKind::kLoadStash:
    case OpKind::kLoadPartial:
    case OpKind::kLoadHiddenGradient:
    case OpKind::kStoreHiddenGradient:
    case OpKind::kStoreStash:
    case OpKind::kStoreNorm:
    case OpKind::kStoreGradient:
    case OpKind::kStorePartial:
    case OpKind::kStoreLosses:
    case OpKind::kEndDeviceUpdate:
      return Copy(op, *stream);
    case OpKind::kEmbedForward:
    case OpKind::kLayerForward:
    case OpKind::kHead:
    case OpKind::kHeadLoss:
    case OpKind::kLayerBackward:
    case OpKind::kEmbedBackward:
    case OpKind::kFinishGradient:
      return Compute(op, *stream);
    case OpKind::kCheckLosses:
      return CheckLosses(op);
    case OpKind::kClip:
      return Clip(op);
    case OpKind::kUpdateRows:
      return UpdateRows(op);
    case OpKind::kUpdateTile:
      return UpdateTile(op);
    case OpKind::kCheckUpdates:
      return CheckUpdates(op);
    case OpKind::kBeginDeviceUpdate:
      return p_.device->kernels().Zero(*stream, p_.device_buffers->update_flags + op.tile,
                                       sizeof(int32_t));
    case OpKind::kDeviceUpdate:
      return UpdateOnDevice(op, *stream);
    case OpKind::kSaveTile:
      save_calls_.take_tile(op.tile, (*p_.tiles)[op.tile]);
      return absl::OkStatus();
    case OpKind::kFinishCheckpoint:
      save_calls_.finish();
      return absl::OkStatus();
  }
  return absl::InternalError("unknown operation");
}

void* StepRunner::BufferAt(const Op& op) const {
  return static_cast<char*>(p_.device_buffers->weights[op.weight_buffer]) +
         op.begin * p_.dimensions->shape.weight_element_bytes;
}

absl::Status StepRunner::LoadTile(const Op& op, Stream& stream) {
  const int64_t begin = op.begin * p_.dimensions->shape.weight_element_bytes;
  return p_.device->CopyToDevice(stream, BufferAt(op),
                                 static_cast<const char*>((*p_.tiles)[op.tile].weights) + begin,
                                 op.bytes);
}

absl::Status StepRunner::Upload(const Op& op, Stream& stream) {
  const PipelineDimensions& d = *p_.dimensions;
  const BatchArrays host = BatchArrays::At(p_.host_buffers->batch[op.step_slot].data(), d);
  const BatchArrays device = BatchArrays::At(p_.device_buffers->batch[op.step_slot], d);
  const StepState& state = states_[op.step_slot];
  for (size_t m = 0; m < state.micro_batch_tokens.size(); ++m) {
    const int64_t base = static_cast<int64_t>(m) * d.micro_batch_tokens;
    const int64_t bytes = state.micro_batch_tokens[m] * int64_t{sizeof(int32_t)};
    for (auto array : {&BatchArrays::ids, &BatchArrays::positions, &BatchArrays::targets,
                       &BatchArrays::sorted_positions}) {
      MT_RETURN_IF_ERROR(
          p_.device->CopyToDevice(stream, device.*array + base, host.*array + base, bytes));
    }
    MT_RETURN_IF_ERROR(p_.device->CopyToDevice(stream, device.document_bounds + 2 * base,
                                               host.document_bounds + 2 * base, 2 * bytes));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Compute(const Op& op, Stream& stream) {
  const DeviceBuffers& b = *p_.device_buffers;
  const PipelineDimensions& d = *p_.dimensions;
  Kernels& kernels = p_.device->kernels();
  const LayerContext context = Context(&stream);
  const int slot = op.step_slot;
  void* const weights = op.weight_buffer >= 0 ? b.weights[op.weight_buffer] : nullptr;
  float* const gradient = op.accumulator >= 0 ? b.accumulators[op.accumulator] : nullptr;
  const MicroBatchView view = op.micro_batch >= 0 ? View(slot, op.micro_batch) : MicroBatchView();
  const bool layer = op.kind == OpKind::kLayerForward || op.kind == OpKind::kLayerBackward;
  LayerActivations activations;
  if (layer) {
    activations = PlaceActivations(
        d.layout->config, d.dtype, d.micro_batch_tokens, d.layer_chunk_tokens, op.keep,
        op.kept_slot >= 0 ? b.kept[op.kept_slot] : nullptr, b.layer_scratch, b.work);
  }
  if (op.first) MT_RETURN_IF_ERROR(ZeroPadding(op, stream));
  switch (op.kind) {
    case OpKind::kEmbedForward:
      return EmbeddingForward(context, weights != nullptr ? weights : (*p_.tiles)[op.tile].weights,
                              view, b.hidden[op.output_slot]);
    case OpKind::kLayerForward:
      return DecoderLayerForward(context, weights, view, b.hidden[op.input_slot], activations,
                                 b.hidden[op.output_slot]);
    case OpKind::kLayerBackward:
      return DecoderLayerBackward(context, weights, view, b.hidden[op.input_slot], activations,
                                  b.backward, b.hidden_gradient[op.sweep_index], gradient,
                                  op.first);
    case OpKind::kHead: {
      const StepState& state = states_[slot];
      MT_RETURN_IF_ERROR(HeadForwardBackward(
          context, weights, view, b.hidden[op.input_slot],
          static_cast<float>(1.0 / static_cast<double>(state.predictions)), b.head, b.losses,
          b.hidden_gradient[op.sweep_index], gradient, op.first));
      return kernels.Sum(stream, b.losses, state.micro_batch_tokens[op.micro_batch],
                         b.loss_sums[slot] + op.micro_batch);
    }
    case OpKind::kHeadLoss:
      if (states_[slot].logits != nullptr && op.micro_batch == 0) {
        MT_RETURN_IF_ERROR(TakeLogits(op, stream));
      }
      MT_RETURN_IF_ERROR(
          HeadLoss(context, weights, view, b.hidden[op.input_slot], b.head, b.losses));
      return kernels.Sum(stream, b.losses, states_[slot].micro_batch_tokens[op.micro_batch],
                         b.loss_sums[slot] + op.micro_batch);
    case OpKind::kEmbedBackward:
      return EmbeddingBackward(
          context, view,
          op.input_slot >= 0 ? b.hidden[op.input_slot] : b.hidden_gradient[op.sweep_index],
          gradient, op.first);
    case OpKind::kFinishGradient: {
      const int64_t elements = d.shape.tile_elements[op.tile];
      MT_RETURN_IF_ERROR(
          kernels.SumOfSquares(stream, gradient, elements, b.norms + op.accumulator));
      if (d.gradient_dtype == DType::kBF16) {
        return kernels.CastToBf16InPlace(stream, gradient, elements);
      }
      return absl::OkStatus();
    }
    default:
      return absl::InternalError(absl::StrCat(OpKindName(op.kind), " is not a compute operation"));
  }
}

// Zeroes the padding between a tile's tensors. No kernel writes it, but the norm, the slab and the
// update read the accumulator as a whole.
absl::Status StepRunner::ZeroPadding(const Op& op, Stream& stream) {
  const TileLayout& tile = p_.dimensions->layout->tiles[op.tile];
  float* const gradient = p_.device_buffers->accumulators[op.accumulator];
  int64_t end = 0;  // of the tensor before
  const auto zero_to = [&](int64_t begin) {
    return begin == end ? absl::OkStatus()
                        : p_.device->kernels().Zero(stream, gradient + end,
                                                    (begin - end) * int64_t{sizeof(float)});
  };
  for (const TensorSpec& tensor : tile.tensors) {
    MT_RETURN_IF_ERROR(zero_to(tensor.offset));
    end = tensor.offset + tensor.elements;
  }
  return zero_to(tile.elements);
}

absl::Status StepRunner::TakeLogits(const Op& op, Stream& stream) {
  LogitsRequest& request = *states_[op.step_slot].logits;
  const int64_t vocabulary = p_.dimensions->layout->config.vocabulary;
  const int64_t end = states_[op.step_slot].micro_batch_tokens[0];
  request.logits.resize((end - request.first_token) * vocabulary);
  return HeadLogits(
      Context(&stream), p_.device_buffers->weights[op.weight_buffer],
      p_.device_buffers->hidden[op.input_slot], request.first_token, end, p_.device_buffers->head,
      [&](int64_t first, int64_t tokens, const float* logits) {
        return p_.device->Download(
            stream, request.logits.data() + (first - request.first_token) * vocabulary, logits,
            tokens * vocabulary * int64_t{sizeof(float)});
      });
}

void StepRunner::CollectLoss(int slot) {
  StepState& state = states_[slot];
  state.loss_sum = 0;
  for (size_t m = 0; m < state.micro_batch_tokens.size(); ++m) {
    state.loss_sum += p_.host_buffers->loss_sums[slot][m];
  }
}

void StepRunner::CollectNorm(int slot) {
  double sum = 0;
  for (int tile = 0; tile < p_.dimensions->shape.tiles(); ++tile) {
    sum += p_.host_buffers->norms[slot][tile];
  }
  states_[slot].gradient_norm = std::sqrt(sum);
}

}  // namespace megatrain
