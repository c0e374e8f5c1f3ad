// BoundLayer is a decoder layer together with its weights, batch and activations. It has the kernel
// calls that the layer's halves and parts share.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_BOUND_LAYER_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_BOUND_LAYER_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/model/layer/activations.h"
#include "engine/model/layer/layer_context.h"

namespace megatrain {

// Tokens [begin, begin + tokens) of the micro-batch.
struct Chunk {
  int64_t begin = 0, tokens = 0;
};

// Weight gradients of one tile, FP32 in the tile's layout.
struct TileGradient {
  float* data = nullptr;  // may be null if all tensors are frozen
  bool add = true;        // gradients are added to what is there; false: they replace it
  bool input = true;      // the gradient with respect to the layer's input is needed too

  float* At(int64_t offset) const { return data + offset; }
};

// A product with a matrix of the tile, which is [out, in], or [in, out] if transposed.
struct ProductShape {
  int64_t rows = 0, in = 0, out = 0;
  bool transposed = false;
};
struct ProductOptions {
  int64_t bias = -1;             // offset in the tile; -1: none
  const void* addend = nullptr;  // has the shape and type of the result; null: none
  double scale = 1.0;
  // The type of the result and the addend. nullopt means context.dtype.
  std::optional<DType> out_dtype = std::nullopt;
};

// In the shapes below, `tokens` is the number of the chunk's tokens. Pointers are to device memory,
// to the first row of the chunk. Operands have the type of activations, context.dtype, and their
// rows are contiguous, unless a comment says otherwise. Functions that return a status, except
// ForChunks, queue work on `stream` and return the errors of the kernels that they queue. The
// memory must stay valid until the stream has run; this object need not. `(+)` marks a bias or an
// addend that may be missing, and before `=` a sum that TileGradient::add turns on.
struct BoundLayer {
  // All arguments must outlive this.
  BoundLayer(const LayerContext& context, const void* weights, const MicroBatchView& batch,
             const LayerActivations& activations);

  // Calls `run` for all chunks in the order of their tokens. Returns the first error.
  absl::Status ForChunks(absl::FunctionRef<absl::Status(const Chunk&)> run) const;

  // --- Products and their gradients.

  // Computes y[rows, out] = scale * x[rows, in] W^T (+ bias) (+ addend). `weight` and `bias` are
  // offsets in the tile, here and below.
  absl::Status Product(const void* x, int64_t weight, const ProductShape& shape, void* y,
                       const ProductOptions& options = {}) const;
  // Computes dx[rows, in] = scale * dy[rows, out] W (+ addend). REQUIRES: options.bias is -1.
  absl::Status ProductGradient(const void* dy, int64_t weight, const ProductShape& shape, void* dx,
                               const ProductOptions& options = {}) const;
  // Computes y[tokens, out] = scale * x[tokens, in] W^T (+ bias) (+ addend). Without a bias `bias`
  // is -1; without an addend `addend` is null.
  absl::Status Linear(const Chunk& chunk, const void* x, int64_t in, int64_t weight, int64_t out,
                      void* y, int64_t bias = -1, const void* addend = nullptr,
                      double scale = 1.0) const;
  // Computes dW[out, in] (+)= scale * dy[tokens, out]^T x[tokens, in], in FP32, for the rows of
  // tensors that are not frozen.
  absl::Status LinearWeightGradient(const Chunk& chunk, const void* x, int64_t in, const void* dy,
                                    int64_t out, int64_t weight, const TileGradient& gradient,
                                    double scale = 1.0) const;
  // Computes dx[tokens, in] = scale * dy[tokens, out] W (+ addend).
  absl::Status LinearInputGradient(const Chunk& chunk, const void* dy, int64_t out, int64_t weight,
                                   int64_t in, void* dx, double scale = 1.0,
                                   const void* addend = nullptr) const;
  // Computes dbias[n] (+)= the sum of the rows of dy[tokens, n], for the tensors that are not
  // frozen. REQUIRES: bias >= 0.
  absl::Status BiasGradient(const Chunk& chunk, const void* dy, int64_t n, int64_t bias,
                            const TileGradient& gradient) const;
  // --- The factor of the result, and norms.

  // Multiplies x[tokens, hidden] by the layer's output_scale, if it has one. This is the last step
  // of the layer's forward pass, and the first step of its backward pass.
  absl::Status ScaleOutput(const Chunk& chunk, void* x) const;
  // Returns the arguments for the norm of x [tokens, hidden]. The kernel writes y [tokens, hidden]
  // and rstd [tokens]. Without a weight `weight` is -1, here and below.
  RmsNormArgs NormArgs(const Chunk& chunk, const void* x, int64_t weight, void* y,
                       float* rstd) const;
  // Returns the arguments with which the kernel adds the gradient with respect to x to `dh`. `dy`
  // is the gradient with respect to the norm of x. `rstd` is what the forward pass wrote. x, dy and
  // dh are [tokens, hidden]. The gradient of a frozen weight is left out.
  RmsNormBackwardArgs NormBackwardArgs(const Chunk& chunk, const void* x, int64_t weight,
                                       const float* rstd, const void* dy, void* dh,
                                       const TileGradient& gradient) const;

  // --- Attention.

  // Rotates `heads` heads of head_dim elements in the chunk's rows, the first at `x`, unless `rope`
  // (an index in ModelDescription::ropes) is -1. Rows are `stride` elements apart. `inverse`
  // rotates back, which gives the gradient.
  absl::Status RotateHeads(const Chunk& chunk, void* x, int64_t stride, int64_t heads, int rope,
                           bool inverse) const;
  // Returns the arguments of attention over the whole micro-batch. The caller sets q, k and v with
  // their strides, out and lse.
  AttentionArgs AttentionCall() const;
  // Queues attention. With a cache the layer's own keys and values are stored there first. With
  // LayerCache::attend each token then attends to its sequence's rows of the cache, else inside its
  // document as without a cache.
  absl::Status Attend(const AttentionArgs& args) const;

  // --- Places.

  // Returns true if any of elements [offset, offset + elements) of the tile is trained; false if
  // `offset` is -1.
  bool Trains(int64_t offset, int64_t elements) const {
    return offset >= 0 && !TrainedRanges(tile, {offset, offset + elements}).empty();
  }

  // Return `base` plus a number of elements of the activation type.
  const void* Offset(const void* base, int64_t elements) const {
    return static_cast<const char*>(base) + elements * DTypeBytes(context.dtype);
  }
  void* Offset(void* base, int64_t elements) const {
    return static_cast<char*>(base) + elements * DTypeBytes(context.dtype);
  }
  // Returns the chunk's rows of a tensor [all tokens, width].
  template <typename Pointer>
  Pointer* Rows(Pointer* tensor, const Chunk& chunk, int64_t width) const {
    return Offset(tensor, chunk.begin * width);
  }
  // Returns the chunk's rows of a tensor that holds all tokens if `kept`, otherwise only one chunk.
  void* RowsIfKept(void* tensor, bool kept, const Chunk& chunk, int64_t width) const {
    return kept ? Rows(tensor, chunk, width) : tensor;
  }
  // Returns the chunk's rows of the residual stream between the halves. Unless keeps_products, all
  // chunks use the same memory in turn. REQUIRES: the layer is dense, or keeps_products is false.
  void* Middle(const Chunk& chunk) const {
    return RowsIfKept(a.middle, keeps_products, chunk, hidden);
  }

  const LayerContext& context;
  const ModelDescription& model;
  const LayerDescription& d;  // of context.layer
  const TileLayout& tile;     // of context.tile
  const LayerOffsets& o;      // the tile's
  Kernels& kernels;
  Stream& stream;
  const char* const weights;  // the tile's, on the device
  const MicroBatchView& batch;
  const LayerActivations& a;
  const bool keeps_products;  // the level is not KeepLevel::kNothing
  const bool keeps_all;       // the level is KeepLevel::kEverything
  const int64_t hidden, projected_width, mixed_width;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_BOUND_LAYER_H_
