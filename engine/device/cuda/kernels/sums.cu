// Sums: of a bias' gradient over rows, of a whole tile in FP64, and of two matrices. Beside them,
// the product of many elements and one.
#include <algorithm>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/partial_sums.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 256;

constexpr int kWarps = kThreads / kWarp;

// Block (columns, part): the rows [part * rows_each, ...) of its columns, a pack a lane.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads, 4)
    BiasBackwardKernel(int64_t rows, int64_t rows_each, int64_t n, const T* dy, int64_t stride,
                       float* partial) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp) * kCount;
  const int64_t first = blockIdx.y * rows_each;
  const int64_t mine = first + rows_each < rows ? rows_each : rows - first;
  float sums[kCount];
  ColumnSums<kWarps>(dy + first * stride + column, mine, stride, column < n, SharedMemory<float>(),
                     sums);
  if (threadIdx.x >= kWarp || column >= n) return;
#pragma unroll
  for (int j = 0; j < kCount; ++j) partial[blockIdx.y * n + column + j] = sums[j];
}

template <typename T, int kCount>
int LaunchBias(const Queue& queue, int64_t rows, int64_t n, const T* dy, int64_t stride,
               float* dbias, bool add, float* partial) {
  // Four blocks for nearly each of an H200's 132 multiprocessors, on every card the same.
  constexpr int64_t kBlocks = 512;
  const int64_t columns = CeilDiv(n, kWarp * kCount);
  const int64_t parts_max =
      std::min(PartialSumBlocks(queue, CeilDiv(rows, kWarps), n), CeilDiv(kBlocks, columns));
  if (parts_max == 0) return kInvalidValue;
  const int64_t rows_each = CeilDiv(rows, parts_max);
  const int64_t parts = CeilDiv(rows, rows_each);
  const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>(parts), 1);
  const int error = Launch(BiasBackwardKernel<T, kCount>, grid, kThreads,
                           kColumnSumsFloats<kCount, kWarps> * int{sizeof(float)}, queue, rows,
                           rows_each, n, dy, stride, partial);
  if (error != 0) return error;
  return AddPartialSums(queue, partial, parts, n, add, dbias);
}

template <typename T>
int BiasBackwardOf(const Queue& queue, int64_t rows, int64_t n, const void* dy, int64_t stride,
                   float* dbias, bool add, void* scratch) {
  constexpr int64_t kSize = sizeof(T);
  const T* const from = static_cast<const T*>(dy);
  float* const partial = static_cast<float*>(scratch);
  return MovesPacks(queue, {dy}, {stride * kSize, n * kSize})
             ? LaunchBias<T, kPackCount<T>>(queue, rows, n, from, stride, dbias, add, partial)
             : LaunchBias<T, 1>(queue, rows, n, from, stride, dbias, add, partial);
}

// ---- FP64 ----

// As of a bias' gradient.
constexpr int64_t kSumBlocks = 512;
constexpr int kPacksAtOnce = 4;

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
__global__ void __launch_bounds__(kThreads) SumKernel(const float* x, int64_t n, double* partial) {
  double sum = 0;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, packs = n / kCount;
  for (int64_t first = thread; first < packs; first += step * kPacksAtOnce) {
    Pack<float, kCount> held[kPacksAtOnce];
#pragma unroll
    for (int k = 0; k < kPacksAtOnce; ++k) {
      const int64_t pack = first + k * step;
      held[k] = LoadPack<float, kCount>(x + pack * kCount, pack < packs);
    }
#pragma unroll
    for (int k = 0; k < kPacksAtOnce; ++k) {
      float v[kCount];
      Widen(held[k], v);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum += Term::Of(v[j]);
    }
  }
  // The last pack, if it is not whole.
  if (thread < n - packs * kCount) sum += Term::Of(x[packs * kCount + thread]);
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
int SumOf(const Queue& queue, const float* x, int64_t n, double* sum, void* scratch) {
  constexpr int kCount = kPackCount<float>;
  const bool packs = MovesPacks(queue, {x}, {});
  const int64_t work = kThreads * int64_t{packs ? kCount : 1};
  // Depends on n (and alignment) alone, so that the order of the sum does.
  const int64_t blocks_max = queue.paths.split_sums ? kSumBlocks : 1;
  const int64_t blocks = std::max(int64_t{1}, std::min(blocks_max, CeilDiv(n, work)));
  const int shared = kThreads / kWarp * int{sizeof(double)};
  double* const partial = static_cast<double*>(scratch);
  const int error =
      packs ? Launch(SumKernel<Term, kCount>, Grid(blocks), kThreads, shared, queue, x, n, partial)
            : Launch(SumKernel<Term, 1>, Grid(blocks), kThreads, shared, queue, x, n, partial);
  if (error != 0) return error;
  return Launch(AddSumsKernel, Grid(1), kThreads, shared, queue,
                static_cast<const double*>(partial), blocks, sum);
}

// A thread adds a pack of a row, which has `packs` of them.
template <typename A, typename B, typename Y, int kCount>
__global__ void __launch_bounds__(kThreads) AddKernel(AddArgs args, uint32_t packs, uint32_t all) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= all) return;
  const int64_t row = thread / packs, i = static_cast<int64_t>(thread % packs) * kCount;
  float sum[kCount];
  Load(static_cast<const A*>(args.a.data) + row * args.a.stride + i, sum);
  if (args.b.data != nullptr) {
    float addend[kCount];
    Load(static_cast<const B*>(args.b.data) + row * args.b.stride + i, addend);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum[j] += addend[j];
  }
  Store(sum, static_cast<Y*>(args.y) + row * args.y_stride + i);
}

// Packs have four elements, which are 16 bytes of FP32 or 8 of BF16.
template <typename A, typename B, typename Y>
int AddOf(const Queue& queue, const AddArgs& args) {
  constexpr int kCount = 4;
  const auto bytes = [](DType dtype, int64_t elements) { return elements * DTypeBytes(dtype); };
  const bool packs =
      args.width % kCount == 0 &&
      MovesPacks(queue, {args.a.data, args.b.data, args.y},
                 {bytes(args.a.dtype, args.a.stride), bytes(args.b.dtype, args.b.stride),
                  bytes(args.y_dtype, args.y_stride)});
  const int64_t row = packs ? args.width / kCount : args.width, all = args.rows * row;
  if (all == 0) return 0;
  if (all > kThreadsMax) return kInvalidValue;
  return Launch(packs ? AddKernel<A, B, Y, kCount> : AddKernel<A, B, Y, 1>,
                Grid(CeilDiv(all, kThreads)), kThreads, 0, queue, args, static_cast<uint32_t>(row),
                static_cast<uint32_t>(all));
}
template <typename A, typename B>
int AddInto(const Queue& queue, const AddArgs& args) {
  return args.y_dtype == DType::kF32 ? AddOf<A, B, float>(queue, args)
                                     : AddOf<A, B, Bf16>(queue, args);
}
template <typename A>
int AddTo(const Queue& queue, const AddArgs& args) {
  return args.b.dtype == DType::kF32 ? AddInto<A, float>(queue, args)
                                     : AddInto<A, Bf16>(queue, args);
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) ScaleKernel(T* x, int64_t packs, const T* factor) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const float scale = ToFloat(*factor);
  float v[kCount];
  Load(x + pack * kCount, v);
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] *= scale;
  Store(v, x + pack * kCount);
}

template <typename T>
int ScaleOf(const Queue& queue, T* x, int64_t n, const T* factor) {
  const bool in_packs = MovesPacks(queue, {x}, {n * int64_t{sizeof(T)}});
  const int64_t packs = in_packs ? n / kPackCount<T> : n;
  if (packs == 0) return 0;
  return Launch(in_packs ? ScaleKernel<T, kPackCount<T>> : ScaleKernel<T, 1>,
                Grid(CeilDiv(packs, kThreads)), kThreads, 0, queue, x, packs, factor);
}

}  // namespace

int BiasBackward(const Queue& queue, DType dtype, int64_t rows, int64_t n, const void* dy,
                 int64_t stride, float* dbias, bool add, void* scratch) {
  if (n == 0) return 0;
  if (rows == 0) return AddPartialSums(queue, static_cast<float*>(scratch), 0, n, add, dbias);
  return dtype == DType::kF32
             ? BiasBackwardOf<float>(queue, rows, n, dy, stride, dbias, add, scratch)
             : BiasBackwardOf<Bf16>(queue, rows, n, dy, stride, dbias, add, scratch);
}

int SumOfSquares(const Queue& queue, const float* x, int64_t n, double* sum, void* scratch) {
  return SumOf<Square>(queue, x, n, sum, scratch);
}

int Sum(const Queue& queue, const float* x, int64_t n, double* sum, void* scratch) {
  return SumOf<Identity>(queue, x, n, sum, scratch);
}

int Add(const Queue& queue, const AddArgs& args) {
  return args.a.dtype == DType::kF32 ? AddTo<float>(queue, args) : AddTo<Bf16>(queue, args);
}

int Scale(const Queue& queue, DType dtype, void* x, int64_t n, const void* factor) {
  return dtype == DType::kF32
             ? ScaleOf(queue, static_cast<float*>(x), n, static_cast<const float*>(factor))
             : ScaleOf(queue, static_cast<Bf16*>(x), n, static_cast<const Bf16*>(factor));
}

}  // namespace megatrain::cuda
