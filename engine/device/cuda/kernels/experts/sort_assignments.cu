// A stable counting sort of assignments by expert, without atomics. The assignments are cut into
// pieces, one a warp. A first kernel counts each piece's assignments of each expert. A second one
// makes of the counts the places where each piece's assignments of an expert begin. A third one
// goes through the pieces again and places each assignment.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
// Two warps for nearly each of an H200's 132 multiprocessors. The second kernel reads the counts of
// all pieces with one block, and more pieces would take it longer.
constexpr int64_t kPiecesMax = 256;
constexpr int kScanThreads = 512;
// Counts that a thread asks for before it uses the first.
constexpr int kScanHeld = 8;

struct Pieces {
  int64_t length = 0, count = 0;  // in assignments; of pieces
  int32_t* counts = nullptr;      // [count, experts], in the scratch memory
};

// Calls f(assignment, expert, n) for the assignments [begin, end) in their order. n counts the
// expert's assignments on from `counts[expert]`, which is changed with them. A warp has all of
// `counts` to itself, and all its threads must call it.
template <typename F>
__device__ void ForEachAssignment(const int32_t* choice, int64_t begin, int64_t end,
                                  int32_t* counts, F f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t first = begin; first < end; first += kWarp) {
    const int64_t assignment = first + lane;
    const bool is_there = assignment < end;
    const int32_t expert = is_there ? choice[assignment] : -1;
    const unsigned same = __match_any_sync(~0u, expert);  // the lanes that have this expert too
    const int32_t n = (is_there ? counts[expert] : 0) + __popc(same & ((1u << lane) - 1));
    if (is_there) f(assignment, expert, n);
    __syncwarp();                                               // all have read their counts
    if (is_there && same >> lane == 1) counts[expert] = n + 1;  // the last of these lanes
    __syncwarp();
  }
}

// Calls f(begin, end, counts) for the warp's piece, if it has one.
template <typename F>
__device__ void WithPiece(const SortAssignmentsArgs& args, const Pieces& pieces, F f) {
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (piece >= pieces.count) return;
  const int64_t begin = piece * pieces.length, all = args.tokens * args.chosen;
  f(begin, all - begin < pieces.length ? all : begin + pieces.length,
    pieces.counts + piece * args.experts);
}

__global__ void __launch_bounds__(kThreads)
    CountAssignmentsKernel(SortAssignmentsArgs args, Pieces pieces) {
  WithPiece(args, pieces, [&](int64_t begin, int64_t end, int32_t* counts) {
    for (int64_t e = threadIdx.x % kWarp; e < args.experts; e += kWarp) counts[e] = 0;
    __syncwarp();
    ForEachAssignment(args.choice, begin, end, counts, [&](int64_t, int32_t expert, int32_t) {
      assert(expert >= 0 && expert < args.experts);
    });
  });
}

// Turns the counts of an expert's column into the sums of those before. Returns the sum of all.
__device__ inline int32_t SumCounts(const Pieces& pieces, int64_t experts, int64_t e) {
  int32_t sum = 0;
  for (int64_t first = 0; first < pieces.count; first += kScanHeld) {
    int32_t held[kScanHeld];
#pragma unroll
    for (int k = 0; k < kScanHeld; ++k) {
      held[k] = first + k < pieces.count ? pieces.counts[(first + k) * experts + e] : 0;
    }
#pragma unroll
    for (int k = 0; k < kScanHeld; ++k) {
      if (first + k < pieces.count) pieces.counts[(first + k) * experts + e] = sum;
      sum += held[k];
    }
  }
  return sum;
}

// One block, a thread an expert, kScanThreads of them at a time. Shared: a sum for each thread.
__global__ void __launch_bounds__(kScanThreads)
    ScanCountsKernel(SortAssignmentsArgs args, Pieces pieces) {
  int32_t* const sums = SharedMemory<int32_t>();
  const int thread = static_cast<int>(threadIdx.x);
  int32_t before = 0;
  for (int64_t first = 0; first < args.experts; first += kScanThreads) {
    const int64_t e = first + thread;
    const int32_t mine = e < args.experts ? SumCounts(pieces, args.experts, e) : 0;
    sums[thread] = mine;
    __syncthreads();
    for (int step = 1; step < kScanThreads; step *= 2) {
      const int32_t more = thread >= step ? sums[thread - step] : 0;
      __syncthreads();
      sums[thread] += more;
      __syncthreads();
    }
    if (e < args.experts) args.offsets[e] = before + sums[thread] - mine;
    before += sums[kScanThreads - 1];
    __syncthreads();  // shared is written again
  }
  if (thread == 0) args.offsets[args.experts] = before;
}

// Rows ascend with experts, so that a row's rank among its token's is its expert's.
__global__ void __launch_bounds__(kThreads)
    PlaceAssignmentsKernel(SortAssignmentsArgs args, Pieces pieces) {
  WithPiece(args, pieces, [&](int64_t begin, int64_t end, int32_t* counts) {
    const auto place = [&](int64_t assignment, int32_t expert, int32_t n) {
      const int32_t row = args.offsets[expert] + n;
      args.assignments[row] = static_cast<int32_t>(assignment);
      const uint32_t chosen = static_cast<uint32_t>(args.chosen);
      const int64_t of_token = static_cast<uint32_t>(assignment) / chosen * int64_t{chosen};
      int rank = 0;
      for (uint32_t j = 0; j < chosen; ++j) rank += args.choice[of_token + j] < expert;
      args.rows[of_token + rank] = row;
    };
    ForEachAssignment(args.choice, begin, end, counts, place);
  });
}

}  // namespace

int SortAssignments(const Queue& queue, const SortAssignmentsArgs& args, void* scratch) {
  const int64_t assignments = args.tokens * args.chosen;
  Pieces pieces;
  pieces.counts = static_cast<int32_t*>(scratch);
  if (assignments > 0) {
    const int64_t fit = kScratchBytes / (args.experts * int64_t{sizeof(int32_t)});
    if (fit == 0 || assignments > std::numeric_limits<int32_t>::max()) return kInvalidValue;
    const int64_t pieces_max = std::min({kPiecesMax, fit, CeilDiv(assignments, kWarp)});
    pieces.length = CeilDiv(CeilDiv(assignments, pieces_max), kWarp) * kWarp;
    pieces.count = CeilDiv(assignments, pieces.length);
  }
  const dim3 grid = Grid(CeilDiv(pieces.count, kWarps));
  int error = 0;
  if (assignments > 0) {
    error = Launch(CountAssignmentsKernel, grid, kThreads, 0, queue, args, pieces);
  }
  if (error == 0) {
    error = Launch(ScanCountsKernel, Grid(1), kScanThreads, kScanThreads * int{sizeof(int32_t)},
                   queue, args, pieces);
  }
  if (error == 0 && assignments > 0) {
    error = Launch(PlaceAssignmentsKernel, grid, kThreads, 0, queue, args, pieces);
  }
  return error;
}

}  // namespace megatrain::cuda
