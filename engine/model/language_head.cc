#include "engine/model/language_head.h"

#include <algorithm>
#include <bit>

#include "engine/base/status.h"
#include "engine/model/activations.h"

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
  const ModelConfig& c = context.layout->config;
  RmsNormArgs norm;
  norm.dtype = context.dtype;
  norm.rows = tokens;
  norm.width = c.hidden;
  norm.epsilon = static_cast<float>(c.norm_epsilon);
  norm.x = At(context, x, begin * c.hidden);
  norm.x_stride = c.hidden;
  norm.weight = At(context, weights, context.layout->final_norm_offset);
  norm.y = scratch.normed;
  norm.y_stride = c.hidden;
  norm.rstd = scratch.rstd;
  MT_RETURN_IF_ERROR(context.kernels->RmsNorm(*context.stream, norm));
  MatMulArgs product;
  product.m = tokens;
  product.n = c.vocabulary;
  product.k = c.hidden;
  product.dtype = context.dtype;
  product.out_dtype = DType::kF32;
  product.a = scratch.normed;
  product.a_stride = c.hidden;
  product.b = At(context, weights, context.layout->head_offset);
  product.b_stride = c.hidden;
  product.transpose_b = true;
  product.out = scratch.logits;
  product.out_stride = c.vocabulary;
  return context.kernels->MatMul(*context.stream, product);
}

CrossEntropyArgs ChunkCrossEntropy(const LayerContext& context, const MicroBatchView& batch,
                                   int64_t begin, int64_t tokens, float scale,
                                   const HeadScratch& scratch, float* losses,
                                   const float* loss_weights) {
  CrossEntropyArgs args;
  args.dtype = context.dtype;
  args.tokens = tokens;
  args.vocabulary = context.layout->config.vocabulary;
  args.logits = scratch.logits;
  args.logits_stride = args.vocabulary;
  args.labels = batch.targets + begin;
  args.scale = scale;
  if (loss_weights != nullptr) args.weights = loss_weights + begin;
  args.losses = losses + begin;
  return args;
}

// The one list of tensors and sizes.
HeadScratch Place(const ModelConfig& config, DType dtype, int64_t chunk_tokens,
                  TensorCursor& cursor) {
  HeadScratch scratch;
  scratch.chunk_tokens = chunk_tokens;
  cursor.Take(&scratch.logits, chunk_tokens * config.vocabulary * int64_t{sizeof(float)});
  cursor.Take(&scratch.normed, chunk_tokens * config.hidden * DTypeBytes(dtype));
  cursor.Take(&scratch.rstd, chunk_tokens * int64_t{sizeof(float)});
  return scratch;
}

}  // namespace

int64_t HeadChunkTokens(const ModelConfig& config, int64_t micro_batch_tokens,
                        const HeadChunkMax& max) {
  const uint64_t fitting = std::max<int64_t>(1, max.logits_bytes / (4 * config.vocabulary));
  const int64_t power = static_cast<int64_t>(std::bit_floor(fitting));
  return std::min(micro_batch_tokens, std::clamp(power, kChunkTokensMin, max.tokens));
}

int64_t HeadScratchBytes(const ModelConfig& config, DType dtype, int64_t chunk_tokens) {
  TensorCursor cursor;
  Place(config, dtype, chunk_tokens, cursor);
  return cursor.offset;
}

HeadScratch PlaceHeadScratch(const ModelConfig& config, DType dtype, int64_t chunk_tokens,
                             void* block) {
  TensorCursor cursor{static_cast<char*>(block)};
  return Place(config, dtype, chunk_tokens, cursor);
}

absl::Status EmbeddingForward(const LayerContext& context, const void* weights,
                              const MicroBatchView& batch, void* x) {
  EmbeddingArgs args;
  args.dtype = context.dtype;
  args.tokens = batch.tokens;
  args.hidden = context.layout->config.hidden;
  args.vocabulary = context.layout->config.vocabulary;
  args.ids = batch.ids;
  args.table = At(context, weights, context.layout->embedding_offset);
  args.out = x;
  return context.kernels->Embedding(*context.stream, args);
}

absl::Status EmbeddingBackward(const LayerContext& context, const MicroBatchView& batch,
                               const void* dh, float* gradient, bool first) {
  EmbeddingBackwardArgs args;
  args.dtype = context.dtype;
  args.tokens = batch.tokens;
  args.hidden = context.layout->config.hidden;
  args.vocabulary = context.layout->config.vocabulary;
  args.ids = batch.ids;
  args.sorted_positions = batch.sorted_positions;
  args.dout = dh;
  args.dtable = gradient + context.layout->embedding_offset;
  args.add = !first;
  return context.kernels->EmbeddingBackward(*context.stream, args);
}

absl::Status HeadForwardBackward(const LayerContext& context, const void* weights,
                                 const MicroBatchView& batch, const void* x, float scale,
                                 const HeadScratch& scratch, float* losses, void* dh,
                                 float* gradient, bool first, bool input_gradient,
                                 const float* loss_weights) {
  const ModelConfig& c = context.layout->config;
  const TileLayout& tile = context.layout->tiles[context.layout->head_tile];
  const bool trains_matrix = IsTrained(tile, context.layout->head_offset);
  const bool trains_norm = IsTrained(tile, context.layout->final_norm_offset);
  const int64_t dlogits_stride = c.vocabulary * 4 / DTypeBytes(context.dtype);
  for (int64_t begin = 0; begin < batch.tokens; begin += scratch.chunk_tokens) {
    const int64_t tokens = std::min(scratch.chunk_tokens, batch.tokens - begin);
    MT_RETURN_IF_ERROR(ChunkLogits(context, weights, x, begin, tokens, scratch));
    MT_RETURN_IF_ERROR(context.kernels->CrossEntropy(
        *context.stream,
        ChunkCrossEntropy(context, batch, begin, tokens, scale, scratch, losses, loss_weights)));

    const bool add = !first || begin > 0;
    MatMulArgs dweight;  // dW[vocabulary, hidden] (+)= dlogits^T normed
    dweight.m = c.vocabulary;
    dweight.n = c.hidden;
    dweight.k = tokens;
    dweight.dtype = context.dtype;
    dweight.out_dtype = DType::kF32;
    dweight.a = scratch.logits;
    dweight.a_stride = dlogits_stride;
    dweight.transpose_a = true;
    dweight.b = scratch.normed;
    dweight.b_stride = c.hidden;
    if (trains_matrix) {
      dweight.out = gradient + context.layout->head_offset;
      dweight.out_stride = c.hidden;
      dweight.addend = add ? dweight.out : nullptr;
      MT_RETURN_IF_ERROR(context.kernels->MatMul(*context.stream, dweight));
    }
    if (!trains_norm && !input_gradient) continue;

    MatMulArgs dinput;  // dnormed[tokens, hidden] = dlogits W, over the normed rows: they are dead
    dinput.m = tokens;
    dinput.n = c.hidden;
    dinput.k = c.vocabulary;
    dinput.dtype = dinput.out_dtype = context.dtype;
    dinput.a = scratch.logits;
    dinput.a_stride = dlogits_stride;
    dinput.b = At(context, weights, context.layout->head_offset);
    dinput.b_stride = c.hidden;
    dinput.out = scratch.normed;
    dinput.out_stride = c.hidden;
    MT_RETURN_IF_ERROR(context.kernels->MatMul(*context.stream, dinput));

    RmsNormBackwardArgs norm;
    norm.dtype = context.dtype;
    norm.rows = tokens;
    norm.width = c.hidden;
    norm.x = At(context, x, begin * c.hidden);
    norm.x_stride = c.hidden;
    norm.weight = At(context, weights, context.layout->final_norm_offset);
    norm.rstd = scratch.rstd;
    norm.dy = scratch.normed;
    norm.dy_stride = c.hidden;
    norm.dx = At(context, dh, begin * c.hidden);
    norm.dx_stride = c.hidden;
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

}  // namespace megatrain
