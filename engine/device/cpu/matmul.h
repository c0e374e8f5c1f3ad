// MatMul over the pool: the output is cut into tiles, each a single-threaded product over all of k.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_MATMUL_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_MATMUL_H_

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/workspace.h"
#include "engine/device/kernels.h"

namespace megatrain {

// The output's tiles: all of `rows` x `columns`, less at the lower and right edges.
struct MatMulTiles {
  int64_t rows = 0, columns = 0;
};

// The tiles that make a product short on pools of few threads and of many, by the cost model in
// matmul.cc. They follow from the shapes alone, for oneDNN's order of sums follows from them.
MatMulTiles ChooseMatMulTiles(int64_t m, int64_t n, int64_t k, bool transpose_a);

// native_bf16: whether BF16 products run as such; else operands are widened to FP32 block by block.
absl::Status RunMatMul(const MatMulArgs& args, bool native_bf16, ThreadPool* pool,
                       WorkspacePool* workspaces);

// Host bytes of one task's buffers, at most.
int64_t MatMulScratchBytesMax();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_MATMUL_H_
