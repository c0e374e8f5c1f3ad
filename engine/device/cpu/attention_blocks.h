// The parts that both directions of blocked attention share: which tokens see each other, and the
// products of a block.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_BLOCKS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernel_args.h"

namespace megatrain::attention {

// A block of scores is kBlock x kChunk in FP32: 256 KiB, a part of any second-level cache. Blocks
// lie on a grid of kBlock, which begins at token 0 or, in backward, at each segment of documents.
// So few shapes of product occur: making the code for a new one takes longer than running it.
inline constexpr int64_t kBlock = 128;
inline constexpr int64_t kChunk = 512;

// The slots of a Workspace (product/workspace.h) that attention uses.
enum Slot { kScores = 1, kSlopes, kSums, kRows, kWideA, kWideB, kWideC, kWideD };

inline int64_t RoundDown(int64_t a, int64_t b) { return a / b * b; }
inline int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Returns InvalidArgument for shapes, windows and softcaps that are not supported, and for
// documents that do not cover the tokens.
absl::Status CheckAttention(const AttentionArgs& args);

// Holds for each token the first key that it sees (`start`), and the token after the last one that
// sees its key (`end`). Neither decreases from a token to the next.
struct SightBounds {
  explicit SightBounds(const AttentionArgs& args);

  std::vector<int32_t> start, end;
};

// Rows of one head: element (row, i) is at row * stride + i, with i < dim.
struct HeadRows {
  const void* data = nullptr;
  int64_t stride = 0;
  int64_t dim = 0;
};

// Selects how blocks are computed: in BF16, or widened to FP32 on a processor without BF16
// products. Scores and Add return the errors of Workspace::Multiply.
struct BlockMath {
  BlockMath(const AttentionArgs& args, bool native_bf16);

  // Returns rows [row, row + rows) of a head of `dim` elements, in `compute`. They are those at
  // `base` or, if they must be widened, a copy in the workspace's slot.
  HeadRows Operand(const void* base, int64_t stride, int64_t dim, int64_t head, int64_t row,
                   int64_t rows, int slot, Workspace& workspace) const;
  // Computes out[m, n] = a[m, a.dim] * b[n, a.dim]^T, with rows of `out` kChunk apart.
  absl::Status Scores(int64_t m, int64_t n, HeadRows a, HeadRows b, float* out,
                      Workspace& workspace) const;
  // Returns the stride of probabilities, which overwrite their FP32 scores row by row.
  int64_t p_stride() const { return kChunk * 4 / DTypeBytes(compute); }
  // Computes out[m, b.dim] += op(p) * b[k, b.dim]; p is [m, k], or [k, m] if transposed.
  absl::Status Add(int64_t m, int64_t k, const void* p, bool transposed, HeadRows b, float* out,
                   Workspace& workspace) const;
  // Writes x[rows, dim], rounded to `storage`, to the rows of a head from `row` on.
  void Narrow(const float* x, int64_t rows, void* base, int64_t stride, int64_t dim, int64_t head,
              int64_t row) const;

  DType storage = DType::kF32;  // of q, k, v and the outputs
  DType compute = DType::kF32;  // of the products' operands
};

}  // namespace megatrain::attention

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_ATTENTION_BLOCKS_H_
