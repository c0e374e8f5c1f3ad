#include "engine/device/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/status.h"
#include "engine/device/cpu/elementwise.h"
#include "engine/device/cpu/loops/ranges.h"
#include "engine/device/cpu/product/product.h"

namespace megatrain {
namespace {

// Without native BF16 a task widens pieces of at most this much of k at a time.
constexpr int64_t kWidenedDepth = 1024;
// and its tiles are at most this long and wide, so that its buffers stay in the cache.
constexpr int64_t kWidenedTile = 512;

// oneDNN slows down to about half where k is much longer than this (the head's dX: k is the
// vocabulary); an FP32 output is then summed in parts of kDepthPart.
constexpr int64_t kDepthMax = 16384;
constexpr int64_t kDepthPart = 4096;

const char* At(const void* matrix, int64_t row, int64_t column, int64_t stride, DType dtype) {
  return static_cast<const char*>(matrix) + (row * stride + column) * DTypeBytes(dtype);
}

// One output tile: rows [row, row + rows), columns [column, column + columns).
struct Tile {
  int64_t row, rows, column, columns;
};

const void* OperandA(const MatMulArgs& args, int64_t row, int64_t depth) {
  return args.transpose_a ? At(args.a, depth, row, args.a_stride, args.dtype)
                          : At(args.a, row, depth, args.a_stride, args.dtype);
}

const void* OperandB(const MatMulArgs& args, int64_t depth, int64_t column) {
  return args.transpose_b ? At(args.b, column, depth, args.b_stride, args.dtype)
                          : At(args.b, depth, column, args.b_stride, args.dtype);
}

// Puts the addend where the product is added to it.
void CopyAddend(const MatMulArgs& args, const Tile& tile, char* out) {
  if (args.addend == nullptr || args.addend == args.out) return;
  const char* from = At(args.addend, tile.row, tile.column, args.out_stride, args.out_dtype);
  const int64_t bytes = DTypeBytes(args.out_dtype);
  for (int64_t row = 0; row < tile.rows; ++row) {
    std::memcpy(out + row * args.out_stride * bytes, from + row * args.out_stride * bytes,
                static_cast<size_t>(tile.columns * bytes));
  }
}

absl::Status NativeTile(const MatMulArgs& args, const Tile& tile, Workspace& workspace) {
  char* out =
      const_cast<char*>(At(args.out, tile.row, tile.column, args.out_stride, args.out_dtype));
  CopyAddend(args, tile, out);
  const ProductShape shape{.m = tile.rows,
                           .n = tile.columns,
                           .k = args.k,
                           .dtype = args.dtype,
                           .out_dtype = args.out_dtype,
                           .transpose_a = args.transpose_a,
                           .transpose_b = args.transpose_b,
                           .bias = args.bias != nullptr,
                           .accumulate = args.addend != nullptr,
                           .a_stride = args.a_stride,
                           .b_stride = args.b_stride,
                           .out_stride = args.out_stride,
                           .alpha = args.alpha};
  const void* bias = args.bias ? At(args.bias, 0, tile.column, 0, args.dtype) : nullptr;
  if (args.out_dtype == DType::kBF16 || args.k <= kDepthMax) {
    return workspace.Multiply(shape, OperandA(args, tile.row, 0), OperandB(args, 0, tile.column),
                              out, bias);
  }
  for (int64_t depth = 0; depth < args.k; depth += kDepthPart) {
    ProductShape part = shape;
    part.k = std::min(kDepthPart, args.k - depth);
    part.bias = shape.bias && depth == 0;
    part.accumulate = shape.accumulate || depth > 0;
    MT_RETURN_IF_ERROR(workspace.Multiply(part, OperandA(args, tile.row, depth),
                                          OperandB(args, depth, tile.column), out,
                                          part.bias ? bias : nullptr));
  }
  return absl::OkStatus();
}

// BF16 without BF16 instructions: the same sums, from operands widened piece by piece.
absl::Status WidenedTile(const MatMulArgs& args, const Tile& tile, Workspace& workspace) {
  enum Slot { kA = 1, kB = 2, kOut = 3, kBias = 4 };
  char* out =
      const_cast<char*>(At(args.out, tile.row, tile.column, args.out_stride, args.out_dtype));
  const bool direct = args.out_dtype == DType::kF32;
  float* sum = nullptr;
  int64_t sum_stride = args.out_stride;
  if (direct) {
    CopyAddend(args, tile, out);
    sum = reinterpret_cast<float*>(out);
  } else {
    sum = workspace.Floats(kOut, tile.rows * tile.columns);
    sum_stride = tile.columns;
    if (args.addend) {
      WidenBlock(reinterpret_cast<const bf16_t*>(
                     At(args.addend, tile.row, tile.column, args.out_stride, DType::kBF16)),
                 args.out_stride, tile.rows, tile.columns, sum, sum_stride);
    }
  }
  float* bias = nullptr;
  if (args.bias) {
    bias = workspace.Floats(kBias, tile.columns);
    WidenToFloat(static_cast<const bf16_t*>(args.bias) + tile.column, tile.columns, bias);
  }
  for (int64_t depth = 0; depth < args.k; depth += kWidenedDepth) {
    const int64_t part = std::min(kWidenedDepth, args.k - depth);
    float* a = workspace.Floats(kA, tile.rows * part);
    float* b = workspace.Floats(kB, tile.columns * part);
    const int64_t a_rows = args.transpose_a ? part : tile.rows;
    const int64_t a_columns = args.transpose_a ? tile.rows : part;
    const int64_t b_rows = args.transpose_b ? tile.columns : part;
    const int64_t b_columns = args.transpose_b ? part : tile.columns;
    WidenBlock(static_cast<const bf16_t*>(OperandA(args, tile.row, depth)), args.a_stride, a_rows,
               a_columns, a, a_columns);
    WidenBlock(static_cast<const bf16_t*>(OperandB(args, depth, tile.column)), args.b_stride,
               b_rows, b_columns, b, b_columns);
    const ProductShape shape{.m = tile.rows,
                             .n = tile.columns,
                             .k = part,
                             .transpose_a = args.transpose_a,
                             .transpose_b = args.transpose_b,
                             .bias = bias != nullptr && depth == 0,
                             .accumulate = args.addend != nullptr || depth > 0,
                             .a_stride = a_columns,
                             .b_stride = b_columns,
                             .out_stride = sum_stride,
                             .alpha = args.alpha};
    MT_RETURN_IF_ERROR(workspace.Multiply(shape, a, b, sum, shape.bias ? bias : nullptr));
  }
  if (!direct) {
    NarrowBlock(sum, sum_stride, tile.rows, tile.columns, reinterpret_cast<bf16_t*>(out),
                args.out_stride);
  }
  return absl::OkStatus();
}

// With few rows, packing a transposed b takes a good part of the product's time: a third for 64
// rows. Then the operands' roles are exchanged. oneDNN packs nothing of a first operand whose rows
// lie along k, as b's do, and little of a second one that has few columns, as the transposed a has;
// the result comes out transposed. Measured on AVX-512 with 32 to 192 rows of weights that are not
// in the cache; below that vectors are not filled, above it packing costs less than transposing.
constexpr int64_t kExchangedRowsMin = 32, kExchangedRowsMax = 192, kExchangedColumns = 256;

bool RolesAreExchanged(const MatMulArgs& args) {
  return args.transpose_b && !args.transpose_a && args.bias == nullptr && args.addend == nullptr &&
         args.m >= kExchangedRowsMin && args.m <= kExchangedRowsMax &&
         args.n >= kExchangedColumns && args.k <= kDepthMax;
}

absl::Status ExchangedTile(const MatMulArgs& args, const Tile& tile, Workspace& workspace) {
  enum Slot { kSum = 1 };
  float* const sum = workspace.Floats(kSum, tile.columns * tile.rows);
  const ProductShape shape{.m = tile.columns,
                           .n = tile.rows,
                           .k = args.k,
                           .dtype = args.dtype,
                           .transpose_b = true,
                           .a_stride = args.b_stride,
                           .b_stride = args.a_stride,
                           .out_stride = tile.rows,
                           .alpha = args.alpha};
  MT_RETURN_IF_ERROR(
      workspace.Multiply(shape, OperandB(args, 0, tile.column), OperandA(args, tile.row, 0), sum));
  TransposeBlock(
      sum, tile.rows, tile.columns, tile.rows, args.out_dtype,
      const_cast<char*>(At(args.out, tile.row, tile.column, args.out_stride, args.out_dtype)),
      args.out_stride);
  return absl::OkStatus();
}

// A product is cut into at most so many tiles.
constexpr int64_t kTilesMax = 512;

// Returns the cost of n equal tiles, in tiles, for each n: the mean over pools of the rounds that a
// pool's busiest thread takes, times the pool's threads. It does not depend on the pool in use,
// because the bits must not. Small pools count most.
//
// On average the last tile finishes half its length later than an even division would, unless the
// tiles divide evenly; kUneven is how much of that remains if they do, since threads differ.
std::array<double, kTilesMax + 1> CostsOnPools() {
  constexpr double kUneven = 0.25;
  constexpr struct {
    int threads;
    double weight;
  } kPools[] = {{1, 1}, {2, 3}, {3, 1}, {4, 1}, {8, 0.5}, {16, 0.25}, {32, 0.1}, {64, 0.05}};
  std::array<double, kTilesMax + 1> costs{};
  for (int64_t tiles = 1; tiles <= kTilesMax; ++tiles) {
    for (const auto& [threads, weight] : kPools) {
      const double even = static_cast<double>(tiles) / threads;
      const double rounds = std::max(static_cast<double>(CeilDiv(tiles, threads)),
                                     even + (threads > 1 ? kUneven : 0));
      costs[static_cast<size_t>(tiles)] += weight * threads * rounds;
    }
  }
  return costs;
}

}  // namespace

// The cost of a tile, in multiply-adds: the product itself, kPacking for each element of a and b
// that the tile packs (they are packed again in every tile), kStart for its start. A transposed a
// lies along k as b does: what is packed is short pieces of many pages.
MatMulTiles ChooseMatMulTiles(int64_t m, int64_t n, int64_t k, bool transpose_a) {
  constexpr double kPacking = 12, kStridedPacking = 40, kStart = 1e6;
  constexpr int64_t kStep = 64;        // four vectors of 16: whole register blocks
  constexpr int64_t kNarrowest = 128;  // oneDNN takes a quarter longer or more for 64 columns
  static const std::array<double, kTilesMax + 1> costs = CostsOnPools();
  MatMulTiles best{m, n};
  double best_cost = 0;
  int64_t last_rows = 0;
  for (int64_t i = 1; i <= CeilDiv(m, kStep) && i <= kTilesMax; ++i) {
    const int64_t rows = std::min(m, CeilDiv(CeilDiv(m, i), kStep) * kStep);
    if (rows == last_rows) continue;
    last_rows = rows;
    int64_t last_columns = 0;
    for (int64_t j = 1; j <= CeilDiv(n, kStep) && i * j <= kTilesMax; ++j) {
      const int64_t columns = std::min(n, CeilDiv(CeilDiv(n, j), kStep) * kStep);
      if (columns == last_columns || columns < std::min(n, kNarrowest)) continue;
      last_columns = columns;
      const double area = static_cast<double>(rows) * static_cast<double>(columns);
      const double packed = static_cast<double>(rows + columns);
      const double tile_cost =
          (area + (transpose_a ? kStridedPacking : kPacking) * packed) * static_cast<double>(k) +
          kStart;
      const int64_t tiles = CeilDiv(m, rows) * CeilDiv(n, columns);
      const double cost = costs[static_cast<size_t>(tiles)] * tile_cost;
      if (best_cost == 0 || cost < best_cost) {
        best_cost = cost;
        best = {rows, columns};
      }
    }
  }
  return best;
}

absl::Status RunMatMul(const MatMulArgs& args, bool native_bf16, ThreadPool* pool,
                       WorkspacePool* workspaces) {
  if (args.m == 0 || args.n == 0) return absl::OkStatus();
  if (args.k == 0) return absl::InvalidArgumentError("a matrix product with k = 0");
  const bool widen = args.dtype == DType::kBF16 && !native_bf16;
  MatMulTiles tiles = ChooseMatMulTiles(args.m, args.n, args.k, args.transpose_a);
  const bool exchanged = !widen && RolesAreExchanged(args);
  if (exchanged) tiles = {args.m, kExchangedColumns};
  if (widen) {
    tiles.rows = std::min(tiles.rows, kWidenedTile);
    tiles.columns = std::min(tiles.columns, kWidenedTile);
  }
  const int64_t across = CeilDiv(args.n, tiles.columns);
  FirstError error;
  pool->ParallelFor(CeilDiv(args.m, tiles.rows) * across, [&](int64_t block) {
    const int64_t row = block / across * tiles.rows;
    const int64_t column = block % across * tiles.columns;
    const Tile tile{row, std::min(tiles.rows, args.m - row), column,
                    std::min(tiles.columns, args.n - column)};
    const WorkspacePool::Lease workspace = workspaces->Take();
    error.Update(widen       ? WidenedTile(args, tile, *workspace)
                 : exchanged ? ExchangedTile(args, tile, *workspace)
                             : NativeTile(args, tile, *workspace));
  });
  return error.status();
}

// Widened operands, the FP32 tile, and oneDNN's own packing buffers, which its blocking keeps below
// 16 MiB.
int64_t MatMulScratchBytesMax() {
  return 4 * (2 * kWidenedTile * kWidenedDepth + kWidenedTile * (kWidenedTile + 1)) +
         (int64_t{16} << 20);
}

}  // namespace megatrain
