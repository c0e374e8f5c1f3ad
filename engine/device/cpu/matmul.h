// MatMul for the cpu device. The output is cut into tiles. One thread computes a tile, over all of
// k.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_MATMUL_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_MATMUL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/device/cpu/product/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// The size of the output's tiles. Tiles at the lower and right edges may be smaller.
struct MatMulTiles {
  int64_t rows = 0, columns = 0;
};

// Returns tiles with which a product is fast on small and on large thread pools, by the cost model
// in matmul.cc. The tiles depend on the arguments alone and not on the pool, because they determine
// oneDNN's order of summation and thus the bits. REQUIRES: m, n and k are positive.
MatMulTiles ChooseMatMulTiles(int64_t m, int64_t n, int64_t k, bool transpose_a);

// Computes MatMulArgs and returns when the product is done. Does nothing if m or n is 0. Otherwise
// returns InvalidArgument if k is 0, and Internal if oneDNN fails for a tile. `native_bf16` is the
// result of HasNativeBf16 (product.h). If it is false, BF16 operands are widened to FP32 piece by
// piece.
absl::Status RunMatMul(const MatMulArgs& args, bool native_bf16, ThreadPool* pool,
                       WorkspacePool* workspaces);

// Returns the most host bytes that the buffers of one task take. A thread runs one task at a time.
int64_t MatMulScratchBytesMax();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_MATMUL_H_
