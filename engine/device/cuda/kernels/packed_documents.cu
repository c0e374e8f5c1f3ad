// Prepares what cuDNN's attention over packed documents needs besides its operands: lengths and
// offsets in device memory, and statistics with tokens first.
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kIndexThreads = 128;
static_assert(kIndexThreads > kPackedDocumentsMax);

// A thread a document, and one for the end.
__global__ void WritePackedIndexKernel(PackedDocuments documents, char* index) {
  const int d = static_cast<int>(threadIdx.x);
  if (d > documents.documents) return;
  if (d < documents.documents) {
    reinterpret_cast<int32_t*>(index)[d] = documents.starts[d + 1] - documents.starts[d];
  }
  for (int t = 0; t < documents.tensors; ++t) {
    reinterpret_cast<int64_t*>(index + (1 + t) * kPackedArrayBytes)[d] =
        documents.starts[d] * documents.token_strides[t];
  }
}

// Tiles of 32 x 32 go through shared memory, so that rows are read and written whole. A row more
// keeps columns out of one bank.
constexpr int kTile = 32, kTilePitch = kTile + 1, kTileRows = 8;

__global__ void TransposeStatisticsKernel(const float* from, int64_t rows, int64_t columns,
                                          int64_t from_stride, float* to, int64_t to_stride,
                                          int64_t column_tiles) {
  float* const tile = SharedMemory<float>();
  const int64_t row = blockIdx.x / column_tiles * kTile, column = blockIdx.x % column_tiles * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  for (int i = y; i < kTile; i += kTileRows) {
    if (row + i < rows && column + x < columns) {
      tile[i * kTilePitch + x] = from[(row + i) * from_stride + column + x];
    }
  }
  __syncthreads();
  for (int i = y; i < kTile; i += kTileRows) {
    if (column + i < columns && row + x < rows) {
      to[(column + i) * to_stride + row + x] = tile[x * kTilePitch + i];
    }
  }
}

}  // namespace

int WritePackedIndex(void* stream, const PackedDocuments& documents, void* index) {
  if (documents.documents < 0 || documents.documents > kPackedDocumentsMax ||
      documents.tensors < 0 || documents.tensors > kPackedTensorsMax) {
    return kInvalidValue;
  }
  return Launch(WritePackedIndexKernel, Grid(1), kIndexThreads, 0, stream, documents,
                static_cast<char*>(index));
}

int TransposeStatistics(void* stream, const float* from, int64_t rows, int64_t columns,
                        int64_t from_stride, float* to, int64_t to_stride) {
  if (rows == 0 || columns == 0) return 0;
  const int64_t column_tiles = CeilDiv(columns, kTile);
  return Launch(TransposeStatisticsKernel, Grid(CeilDiv(rows, kTile) * column_tiles),
                kTile * kTileRows, kTile * kTilePitch * int{sizeof(float)}, stream, from, rows,
                columns, from_stride, to, to_stride, column_tiles);
}

}  // namespace megatrain::cuda
