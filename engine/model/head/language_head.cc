#include "engine/model/head/language_head.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/status.h"
#include "engine/model/layer/activations.h"

namespace megatrain {
namespace {

constexpr int64_t kChunkTokensMin = 64;

const void* At(const LayerContext& context, const void* base, int64_t elements) {
  return static_cast<const char*>(base) + elements * DTypeBytes(context.dtype);
}
void* At(const LayerContext& context, void* base, int64_t elements) {
  return static_cast<char*>(base) + elements * DTypeBytes(context.dtype);
}

// Normed rows and logits of tokens [begin, begin + tokens) of x.
absl::Status ChunkLogits(const LayerContext& context, const void* weights, const void* x,
                         int64_t begin, int64_t tokens, const HeadScratch& scratch) {
  const ModelDescription& model = context.layout->model;
  RmsNormArgs norm;
  norm.dtype = context.dtype;
  norm.rows = tokens;
  norm.width = model.hidden;
  norm.epsilon = static_cast<float>(model.norm_epsilon);
  norm.one_plus_weight = model.one_plus_norms;
  norm.x = At(context, x, begin * model.hidden);
  norm.x_stride = model.hidden;
  norm.weight = At(context, weights, context.layout->final_norm_offset);
  norm.y = scratch.normed;
  norm.y_stride = model.hidden;
  norm.rstd = scratch.rstd;
  MT_RETURN_IF_ERROR(context.kernels->RmsNorm(*context.stream, norm));
  MatMulArgs product;
  product.m = tokens;
  product.n = model.vocabulary;
  product.k = model.hidden;
  product.alpha = static_cast<float>(model.logit_scale);
  product.dtype = context.dtype;
  product.out_dtype = DType::kF32;
  product.a = scratch.normed;
  product.a_stride = model.hidden;
  product.b = At(context, weights, context.layout->head_offset);
  product.b_stride = model.hidden;
  product.transpose_b = true;
  product.out = scratch.logits;
  product.out_stride = model.vocabulary;
  return context.kernels->MatMul(*context.stream, product);
}

CrossEntropyArgs ChunkCrossEntropy(const LayerContext& context, const MicroBatchView& batch,
                                   int64_t begin, int64_t tokens, float scale,
                                   const HeadScratch& scratch, float* losses,
                                   const float* loss_weights) {
  CrossEntropyArgs args;
  args.dtype = context.dtype;
  args.tokens = tokens;
  args.vocabulary = context.layout->model.vocabulary;
  args.logits = scratch.logits;
  args.logits_stride = args.vocabulary;
  args.labels = batch.targets + begin;
  args.scale = scale;
  args.softcap = static_cast<float>(context.layout->model.logit_softcap);
  if (loss_weights != nullptr) args.weights = loss_weights + begin;
  args.losses = losses + begin;
  return args;
}

// The one list of tensors and sizes.
HeadScratch Place(const ModelDescription& config, DType dtype, int64_t chunk_tokens,
                  TensorCursor& cursor) {
  HeadScratch scratch;
  scratch.chunk_tokens = chunk_tokens;
  cursor.Take(&scratch.logits, chunk_tokens * config.vocabulary * int64_t{sizeof(float)});
  cursor.Take(&scratch.normed, chunk_tokens * config.hidden * DTypeBytes(dtype));
  cursor.Take(&scratch.rstd, chunk_tokens * int64_t{sizeof(float)});
  return scratch;
}

}  // namespace

int64_t HeadChunkTokens(const ModelDescription& config, int64_t micro_batch_tokens,
                        const LmHeadChunkMax& max) {
  const uint64_t fitting = std::max<int64_t>(1, max.logits_bytes / (4 * config.vocabulary));
  const int64_t power = static_cast<int64_t>(std::bit_floor(fitting));
  return std::min(micro_batch_tokens, std::clamp(power, kChunkTokensMin, max.tokens));
}

int64_t HeadScratchBytes(const ModelDescription& config, DType dtype, int64_t chunk_tokens) {
  TensorCursor cursor;
  Place(config, dtype, chunk_tokens, cursor);
  return cursor.offset;
}

HeadScratch PlaceHeadScratch(const ModelDescription& config, DType dtype, int64_t chunk_tokens,
                             void* block) {
  TensorCursor cursor{static_cast<char*>(block)};
  return Place(config, dtype, chunk_tokens, cursor);
}

absl::Status EmbeddingForward(const LayerContext& context, const void* weights,
                              const MicroBatchView& batch, void* x) {
  EmbeddingArgs args;
  args.dtype = context.dtype;
  args.tokens = batch.tokens;
  args.hidden = context.layout->model.hidden;
  args.vocabulary = context.layout->model.vocabulary;
  args.ids = batch.ids;
  args.table = At(context, weights, context.layout->embedding_offset);
  args.out = x;
  args.scale = EmbeddingScale(context, context.layout->model.embedding_scale);
  MT_RETURN_IF_ERROR(context.kernels->Embedding(*context.stream, args));
  if (batch.shared.embedding == nullptr) return absl::OkStatus();
  AddArgs copy;
  copy.rows = batch.tokens;
  copy.width = args.hidden;
  copy.a = {context.dtype, x, args.hidden};
  copy.y_dtype = context.dtype;
  copy.y = batch.shared.embedding;
  copy.y_stride = args.hidden;
  MT_RETURN_IF_ERROR(context.kernels->Add(*context.stream, copy));
  AddArgs norm;
  norm.rows = 1;
  norm.width = context.layout->model.layers.front().per_layer_input.width;
  norm.a = {context.dtype, At(context, weights, context.layout->per_layer_norm_offset), norm.width};
  norm.y_dtype = context.dtype;
  norm.y = batch.shared.per_layer_norm;
  norm.y_stride = norm.width;
  return context.kernels->Add(*context.stream, norm);
}

absl::Status EmbeddingBackward(const LayerContext& context, const MicroBatchView& batch,
                               const void* dh, float* gradient, bool first) {
  const ModelLayout& layout = *context.layout;
  if (IsTrained(layout.tiles[0], layout.embedding_offset)) {
    EmbeddingBackwardArgs args;
    args.dtype = context.dtype;
    args.tokens = batch.tokens;
    args.hidden = layout.model.hidden;
    args.vocabulary = layout.model.vocabulary;
    args.ids = batch.ids;
    args.sorted_positions = batch.sorted_positions;
    args.dout = dh;
    args.dtable = gradient + layout.embedding_offset;
    args.add = !first || layout.model.tied_embeddings;
    args.scale = EmbeddingScale(context, layout.model.embedding_scale);
    args.padding_id = layout.model.padding_id;
    MT_RETURN_IF_ERROR(context.kernels->EmbeddingBackward(*context.stream, args));
  }
  if (batch.shared.per_layer_norm_gradient == nullptr) return absl::OkStatus();
  float* const sum = gradient + layout.per_layer_norm_offset;
  AddArgs norm;
  norm.rows = 1;
  norm.width = layout.model.layers.front().per_layer_input.width;
  norm.a = {DType::kF32, batch.shared.per_layer_norm_gradient, norm.width};
  if (!first) norm.b = {DType::kF32, sum, norm.width};
  norm.y_dtype = DType::kF32;
  norm.y = sum;
  norm.y_stride = norm.width;
  return context.kernels->Add(*context.stream, norm);
}

absl::Status HeadForwardBackward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x, float scale,
                                 const HeadScratch& scratch, float* losses, void* dh,
                                 float* gradient, bool first, bool input_gradient,
                                 const float* loss_weights) {
  const ModelDescription& model = context.layout->model;
  const TileLayout& tile = context.layout->tiles[context.layout->head_tile];
  const bool trains_matrix = IsTrained(tile, context.layout->head_offset);
  const bool trains_norm = IsTrained(tile, context.layout->final_norm_offset);
  const int64_t dlogits_stride = model.vocabulary * 4 / DTypeBytes(context.dtype);
  for (int64_t begin = 0; begin < batch.tokens; begin += scratch.chunk_tokens) {
    const int64_t tokens = std::min(scratch.chunk_tokens, batch.tokens - begin);
    MT_RETURN_IF_ERROR(ChunkLogits(context, weights, x, begin, tokens, scratch));
    MT_RETURN_IF_ERROR(context.kernels->CrossEntropy(
        *context.stream,
        ChunkCrossEntropy(context, batch, begin, tokens, scale, scratch, losses, loss_weights)));

    const bool add = !first || begin > 0;
    MatMulArgs dweight;  // dW[vocabulary, hidden] (+)= dlogits^T normed
    dweight.m = model.vocabulary;
    dweight.n = model.hidden;
    dweight.k = tokens;
    dweight.alpha = static_cast<float>(model.logit_scale);
    dweight.dtype = context.dtype;
    dweight.out_dtype = DType::kF32;
    dweight.a = scratch.logits;
    dweight.a_stride = dlogits_stride;
    dweight.transpose_a = true;
    dweight.b = scratch.normed;
    dweight.b_stride = model.hidden;
    if (trains_matrix) {
      dweight.out = gradient + context.layout->head_offset;
      dweight.out_stride = model.hidden;
      dweight.addend = add ? dweight.out : nullptr;
      MT_RETURN_IF_ERROR(context.kernels->MatMul(*context.stream, dweight));
    }
    if (!trains_norm && !input_gradient) continue;

    MatMulArgs dinput;  // dnormed[tokens, hidden] = dlogits W, over the normed rows: they are dead
    dinput.m = tokens;
    dinput.n = model.hidden;
    dinput.k = model.vocabulary;
    dinput.alpha = static_cast<float>(model.logit_scale);
    dinput.dtype = dinput.out_dtype = context.dtype;
    dinput.a = scratch.logits;
    dinput.a_stride = dlogits_stride;
    dinput.b = At(context, weights, context.layout->head_offset);
    dinput.b_stride = model.hidden;
    dinput.out = scratch.normed;
    dinput.out_stride = model.hidden;
    MT_RETURN_IF_ERROR(context.kernels->MatMul(*context.stream, dinput));

    RmsNormBackwardArgs norm;
    norm.dtype = context.dtype;
    norm.rows = tokens;
    norm.width = model.hidden;
    norm.x = At(context, x, begin * model.hidden);
    norm.x_stride = model.hidden;
    norm.weight = At(context, weights, context.layout->final_norm_offset);
    norm.one_plus_weight = model.one_plus_norms;
    norm.rstd = scratch.rstd;
    norm.dy = scratch.normed;
    norm.dy_stride = model.hidden;
    norm.dx = At(context, dh, begin * model.hidden);
    norm.dx_stride = model.hidden;
    norm.dweight = trains_norm ? gradient + context.layout->final_norm_offset : nullptr;
    norm.add_dweight = add;
    MT_RETURN_IF_ERROR(context.kernels->RmsNormBackward(*context.stream, norm));
  }
  return absl::OkStatus();
}

absl::Status HeadLoss(const LayerContext& context, const void* weights, const MicroBatchView& batch,
                      const void* x, const HeadScratch& scratch, float* losses) {
  for (int64_t begin = 0; begin < batch.tokens; begin += scratch.chunk_tokens) {
    const int64_t tokens = std::min(scratch.chunk_tokens, batch.tokens - begin);
    MT_RETURN_IF_ERROR(ChunkLogits(context, weights, x, begin, tokens, scratch));
    CrossEntropyArgs args =
        ChunkCrossEntropy(context, batch, begin, tokens, 0, scratch, losses, nullptr);
    args.loss_only = true;
    MT_RETURN_IF_ERROR(context.kernels->CrossEntropy(*context.stream, args));
  }
  return absl::OkStatus();
}

absl::Status HeadPreference(const LayerContext& context, const void* weights,
                            const MicroBatchView& batch, const void* x,
                            const PreferenceObjective& objective, double scale,
                            const HeadScratch& scratch, float* losses, PreferenceResult* results,
                            float* loss_weights) {
  MT_RETURN_IF_ERROR(HeadLoss(context, weights, batch, x, scratch, losses));
  PreferenceLossArgs args;
  args.objective = objective;
  args.pairs = batch.pairs;
  args.bounds = batch.pair_bounds;
  args.labels = batch.targets;
  args.losses = losses;
  args.reference = batch.reference_logps;
  args.scale = scale;
  args.results = results;
  args.weights = loss_weights;
  return context.kernels->PreferenceLoss(*context.stream, args);
}

absl::Status HeadLogits(
    const LayerContext& context, const void* weights, const void* x, int64_t begin, int64_t end,
    const HeadScratch& scratch,
    absl::FunctionRef<absl::Status(int64_t first, int64_t tokens, const float* logits)> sink) {
  for (int64_t first = begin; first < end; first += scratch.chunk_tokens) {
    const int64_t tokens = std::min(scratch.chunk_tokens, end - first);
    MT_RETURN_IF_ERROR(ChunkLogits(context, weights, x, first, tokens, scratch));
    MT_RETURN_IF_ERROR(sink(first, tokens, scratch.logits));
  }
  return absl::OkStatus();
}

void CapLogits(const ModelDescription& model, absl::Span<float> logits) {
  const float cap = static_cast<float>(model.logit_softcap);
  if (cap <= 0) return;
  for (float& logit : logits) logit = cap * std::tanh(logit / cap);
}

}  // namespace megatrain
