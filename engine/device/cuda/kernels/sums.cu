// Sums: of a bias' gradient over rows, and of a whole tile in FP64.
#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

// Block (columns, part): the rows [part * rows_each, ...) of its columns, one a thread.
template <typename T>
__global__ void BiasBackwardKernel(int64_t rows, int64_t rows_each, int64_t n, const T* dy,
                                   int64_t stride, float* partial) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= n) return;
  const int64_t first = blockIdx.y * rows_each;
  const int64_t last = first + rows_each < rows ? first + rows_each : rows;
  float sum = 0;
  for (int64_t row = first; row < last; ++row) sum += ToFloat(dy[row * stride + column]);
  partial[blockIdx.y * n + column] = sum;
}

template <typename T>
int BiasBackwardOf(void* stream, int64_t rows, int64_t n, const void* dy, int64_t stride,
                   float* dbias, void* scratch) {
  const int64_t parts_max = PartialSumBlocks(rows, n);
  if (parts_max == 0) return kInvalidValue;
  const int64_t rows_each = CeilDiv(rows, parts_max);
  const int64_t parts = CeilDiv(rows, rows_each);
  float* const partial = static_cast<float*>(scratch);
  const dim3 grid(static_cast<unsigned>(CeilDiv(n, kThreads)), static_cast<unsigned>(parts), 1);
  const int error = Launch(BiasBackwardKernel<T>, grid, kThreads, 0, stream, rows, rows_each, n,
                           static_cast<const T*>(dy), stride, partial);
  if (error != 0) return error;
  return AddPartialSums(stream, partial, parts, n, dbias);
}

// ---- FP64 ----

constexpr int64_t kSumBlocks = 1024;

struct Identity {
  __device__ static double Of(float x) { return x; }
};
struct Square {
  __device__ static double Of(float x) { return static_cast<double>(x) * x; }
};

__device__ inline double BlockSum(double x) {
  double* const shared = SharedMemory<double>();
  x = WarpSum(x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) sum += shared[warp];
  return sum;
}

template <typename Term, int kCount>
__global__ void SumKernel(const float* x, int64_t n, double* partial) {
  double sum = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kCount;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  for (; i + kCount <= n; i += step) {
    float v[kCount];
    Load(x + i, v);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += Term::Of(v[j]);
  }
  for (; i < n; ++i) sum += Term::Of(x[i]);  // the last pack, if it is not whole: one thread's
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void AddSumsKernel(const double* partial, int64_t count, double* sum) {
  double mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) mine += partial[i];
  mine = BlockSum(mine);
  if (threadIdx.x == 0) *sum = mine;
}

template <typename Term>
int SumOf(void* stream, const float* x, int64_t n, double* sum, void* scratch) {
  constexpr int kCount = kPackCount<float>;
  const bool packs = Aligned({x}, {});
  const int64_t work = kThreads * int64_t{packs ? kCount : 1};
  // Depends on n (and alignment) alone, so that the order of the sum does.
  const int64_t blocks = std::max(int64_t{1}, std::min(kSumBlocks, CeilDiv(n, work)));
  const int shared = kThreads / kWarp * int{sizeof(double)};
  double* const partial = static_cast<double*>(scratch);
  const int error =
      packs ? Launch(SumKernel<Term, kCount>, Grid(blocks), kThreads, shared, stream, x, n, partial)
            : Launch(SumKernel<Term, 1>, Grid(blocks), kThreads, shared, stream, x, n, partial);
  if (error != 0) return error;
  return Launch(AddSumsKernel, Grid(1), kThreads, shared, stream,
                static_cast<const double*>(partial), blocks, sum);
}

}  // namespace

int BiasBackward(void* stream, DType dtype, int64_t rows, int64_t n, const void* dy, int64_t stride,
                 float* dbias, void* scratch) {
  if (rows * n == 0) return 0;
  return dtype == DType::kF32 ? BiasBackwardOf<float>(stream, rows, n, dy, stride, dbias, scratch)
                              : BiasBackwardOf<Bf16>(stream, rows, n, dy, stride, dbias, scratch);
}

int SumOfSquares(void* stream, const float* x, int64_t n, double* sum, void* scratch) {
  return SumOf<Square>(stream, x, n, sum, scratch);
}

int Sum(void* stream, const float* x, int64_t n, double* sum, void* scratch) {
  return SumOf<Identity>(stream, x, n, sum, scratch);
}

}  // namespace megatrain::cuda
