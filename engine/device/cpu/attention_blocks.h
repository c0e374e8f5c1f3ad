// The parts that both directions of attention by blocks (attention.h) share: which tokens see each
// other, and the products of a block.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_BLOCKS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernel_args.h"

namespace megatrain::attention {

// A block of scores has up to kBlock rows and kChunk columns. They are queries and keys in the
// forward pass, and keys and queries in backward. Its 256 KiB of FP32 fit into any second-level
// cache. Rows and columns begin at multiples of kBlock tokens, counted from token 0 or, in
// backward, from the start of a segment (adjacent documents that are one task for each head of keys
// and values). So few shapes of product occur. Making the code for a new shape takes longer than
// running it.
inline constexpr int64_t kBlock = 128;
inline constexpr int64_t kChunk = 512;

// The slots of a Workspace (product/workspace.h) that attention uses. kWideA to kWideD are for
// operands that are widened (BlockMath::Operand).
enum Slot { kScores = 1, kSlopes, kSums, kRows, kWideA, kWideB, kWideC, kWideD };

// Return `a` rounded down or up to a multiple of `b`. REQUIRES: a >= 0, b > 0.
inline int64_t RoundDown(int64_t a, int64_t b) { return a / b * b; }
inline int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Returns InvalidArgument if heads, head sizes, the window or the softcap are not supported, or if
// the documents do not begin at token 0 or do not end at args.tokens.
absl::Status CheckAttention(const AttentionArgs& args);

// Holds for each token the first token whose key it sees (`start`), and the token after the last
// one that sees its key (`end`). Neither decreases from a token to the next. REQUIRES:
// CheckAttention accepts the arguments.
struct SightBounds {
  explicit SightBounds(const AttentionArgs& args);

  std::vector<int32_t> start, end;
};

// Rows of one head, in memory that others own. Element (row, i) is at row * stride + i, with i <
// dim.
struct HeadRows {
  const void* data = nullptr;
  int64_t stride = 0;
  int64_t dim = 0;
};

// Computes blocks in the type of the arguments, or widened to FP32 if that type is BF16 and the
// processor has no native BF16 products. Scores and AddProduct return the errors of
// Workspace::Multiply.
struct BlockMath {
  BlockMath(const AttentionArgs& args, bool native_bf16);

  // Returns rows [row, row + rows) of a head of `dim` elements, in type `compute`. `base` points to
  // [tokens, heads, dim] in type `storage`, and the rows are in that memory. If they must be
  // widened, they are a copy in the workspace's slot instead, valid until the slot's next use.
  HeadRows Operand(const void* base, int64_t stride, int64_t dim, int64_t head, int64_t row,
                   int64_t rows, int slot, Workspace& workspace) const;
  // Computes out[m, n] = a[m, a.dim] * b[n, a.dim]^T, with rows of `out` kChunk elements apart.
  // REQUIRES: n <= kChunk.
  absl::Status Scores(int64_t m, int64_t n, HeadRows a, HeadRows b, float* out,
                      Workspace& workspace) const;
  // Returns the stride, in elements of type `compute`, of probabilities. Each row of them
  // overwrites the same row of FP32 scores.
  int64_t p_stride() const { return kChunk * 4 / DTypeBytes(compute); }
  // Computes out[m, b.dim] += op(p) * b[k, b.dim]. `p` is [m, k], or [k, m] if `transposed`, with
  // p_stride(). `out` is contiguous.
  absl::Status AddProduct(int64_t m, int64_t k, const void* p, bool transposed, HeadRows b,
                          float* out, Workspace& workspace) const;
  // Writes x[rows, dim], rounded to type `storage`, to the rows of a head from `row` on. `base` is
  // as in Operand.
  void StoreRows(const float* x, int64_t rows, void* base, int64_t stride, int64_t dim,
                 int64_t head, int64_t row) const;

  DType storage = DType::kF32;  // of q, k, v and the outputs
  DType compute = DType::kF32;  // of the products' operands
};

}  // namespace megatrain::attention

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_BLOCKS_H_
