#include "tests/engine/device/cuda/emulation.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/engine/device/cuda/switch_stack.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace megatrain::cuda {
namespace {

constexpr int kWarpLanes = 32;
// Sanitizers' frames are larger.
constexpr size_t kStackBytes = size_t{256} << 10;

std::atomic<bool> reverse_order{false};

std::map<std::string, KernelFault> kernel_faults;
KernelFault load_fault = KernelFault::kNone;

enum class State : char { kRuns, kAtBlock, kAtWarp, kDone };

// A lane's part of a product.
struct Fragments {
  uint32_t a[4] = {}, b[2] = {};
  float d[4] = {};
};

struct AsyncCopy {
  void* shared;
  const void* global;  // null: zeros
  int group;
};

struct Fiber {
  std::unique_ptr<char[]> stack;
  Context context;
  uint64_t given = 0;  // to the lanes of its warp, for matrices
  int exchanges = 0;
  Fragments fragments;            // given to the lanes of its warp, for products
  bool multiplied = false;        // the fragments of the warp; of its first lane
  std::vector<AsyncCopy> copies;  // that have not arrived, oldest first
  int group = 0;                  // of copies that begin now
};

// Ends the process with the block's place.
[[noreturn]] void Refuse(const char* why) {
  std::fprintf(stderr, "block (%u, %u), thread %u: %s\n", blockIdx.x, blockIdx.y, threadIdx.x, why);
  std::abort();
}

// The blocks that one host thread runs, one after the other.
class BlockRunner {
 public:
  ~BlockRunner() {
#if defined(__SANITIZE_THREAD__)
    for (Fiber& fiber : fibers_) __tsan_destroy_fiber(fiber.context.tsan);
#endif
  }

  void Run(int threads, int shared, const std::function<void()>& kernel) {
    Prepare(threads, shared, kernel);
    const int warps = (threads + kWarpLanes - 1) / kWarpLanes;
    do {
      // A warp goes as far as it can before another does: what it may not do without the others
      // is done too early, or too late.
      for (int i = 0; i < warps; ++i) RunWarp(reverse_ ? warps - 1 - i : i);
    } while (ReleaseBlock());
  }

  // Called by fibers.
  void Yield(State state) {
    const int thread = current_;
    GoOn(state);
    threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
  }
  void* shared() { return shared_; }
  Fiber& fiber(int thread) { return fibers_[thread]; }
  // A value that `thread` gives to the lanes of its warp. There are two, in turn: a value is
  // overwritten by the next but one, when all lanes have come to the next one and so have read it.
  uint64_t& exchanged(int turn, int thread) { return exchanged_[turn][thread]; }

 private:
  void Prepare(int threads, int shared, const std::function<void()>& kernel) {
    threads_ = threads;
    kernel_ = &kernel;
    reverse_ = reverse_order;
    if (fibers_.size() < static_cast<size_t>(threads)) fibers_.resize(threads);
    states_.assign(threads, State::kRuns);
    for (std::vector<uint64_t>& values : exchanged_) values.resize(fibers_.size());
#if defined(__SANITIZE_THREAD__)
    scheduler_.tsan = __tsan_get_current_fiber();
#endif
    for (int i = 0; i < threads; ++i) {
      Fiber& fiber = fibers_[i];
      if (fiber.stack == nullptr) {
        fiber.stack.reset(new char[kStackBytes]);
#if defined(__SANITIZE_ADDRESS__)
        fiber.context.stack = fiber.stack.get();
        fiber.context.stack_bytes = kStackBytes;
#endif
#if defined(__SANITIZE_THREAD__)
        fiber.context.tsan = __tsan_create_fiber(0);
#endif
      }
      // Frames of one depth would share a cache set if stacks began at one place of their pages.
      const size_t cache_shift = static_cast<size_t>(i) % 64 * 9 * 64;
      // As SwitchStack leaves it: six registers, then where to go on. On entry a function finds the
      // stack 8 bytes off a multiple of 16.
      void** top = reinterpret_cast<void**>(
          (reinterpret_cast<uintptr_t>(fiber.stack.get()) + kStackBytes - cache_shift) / 16 * 16);
      *--top = nullptr;  // nothing is returned to
      *--top = reinterpret_cast<void*>(&BlockRunner::Start);
      for (int r = 0; r < 6; ++r) *--top = nullptr;
      fiber.context.place = top;
      fiber.exchanges = 0;
    }
    // Exactly as long as asked, and nothing that a kernel could use unwritten.
    shared_block_.reset(new double[(static_cast<size_t>(shared) + 7) / 8]);
    shared_ = shared_block_.get();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < shared / 4; ++i) std::memcpy(static_cast<char*>(shared_) + 4 * i, &nan, 4);
  }

  static void Start();

  // Ends the turn of fiber current_, whose next one comes when `state` allows it. The lanes of a
  // warp go on one after the other, and from the first one when all have met; the scheduler is
  // asked where they cannot.
  void GoOn(State state) {
    const int thread = current_, first = thread / kWarpLanes * kWarpLanes;
    states_[thread] = state;
    const int step = reverse_ ? -1 : 1;
    const int end = reverse_ ? first - 1 : std::min(first + kWarpLanes, threads_);
    int next = thread + step;
    while (next != end && states_[next] != State::kRuns) next += step;
    if (next == end) {
      next = state == State::kAtWarp && Release(Lanes(first), state) ? FirstLane(first) : kNone;
    }
    if (next == thread) return;
    Fiber& fiber = fibers_[thread];
    current_ = next;
    Switch(&fiber.context, next == kNone ? scheduler_ : fibers_[next].context,
           /*from_ends=*/state == State::kDone);
  }

  // Until its threads wait for those of other warps, or have ended.
  void RunWarp(int warp) {
    const int first = warp * kWarpLanes;
    const int lanes = static_cast<int>(Lanes(first).size());
    for (int i = 0; i < lanes; ++i) {
      const int thread = first + (reverse_ ? lanes - 1 - i : i);
      if (states_[thread] != State::kRuns) continue;
      current_ = thread;
      Switch(&scheduler_, fibers_[thread].context, /*from_ends=*/false);
    }
  }

  // The states of the warp that begins with thread `first`, and the lane that goes on first.
  std::span<State> Lanes(int first) {
    return std::span(states_).subspan(first, std::min(threads_ - first, kWarpLanes));
  }
  int FirstLane(int first) {
    return reverse_ ? first + static_cast<int>(Lanes(first).size()) - 1 : first;
  }

  // Lets threads go on if they have all met.
  static bool Release(std::span<State> states, State meeting) {
    const bool met =
        std::all_of(states.begin(), states.end(), [&](State state) { return state == meeting; });
    if (met) std::fill(states.begin(), states.end(), State::kRuns);
    return met;
  }

  // When no warp can go on: false if all threads are done.
  bool ReleaseBlock() {
    if (Release(states_, State::kAtBlock)) return true;
    const auto done = std::count(states_.begin(), states_.end(), State::kDone);
    const auto at_block = std::count(states_.begin(), states_.end(), State::kAtBlock);
    if (done == threads_) return false;
    std::fprintf(
        stderr,
        "block (%u, %u): %td of %d threads wait in __syncthreads, %td have ended, the rest "
        "wait for their warps: they never meet\n",
        blockIdx.x, blockIdx.y, at_block, threads_, done);
    std::abort();
  }

  static constexpr int kNone = -1;

  int threads_ = 0;
  int current_ = kNone;  // the fiber that runs
  bool reverse_ = false;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<State> states_;  // of the threads' fibers
  std::vector<uint64_t> exchanged_[2];
  Context scheduler_;
  std::unique_ptr<double[]> shared_block_;
  void* shared_ = nullptr;
};

BlockRunner& Runner() {
  static thread_local BlockRunner runner;
  return runner;
}

void BlockRunner::Start() {
  BlockRunner& runner = Runner();
#if defined(__SANITIZE_ADDRESS__)
  // The first fiber of all is entered from the host thread's own stack.
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (runner.scheduler_.stack == nullptr) {
    runner.scheduler_.stack = stack;
    runner.scheduler_.stack_bytes = bytes;
  }
#endif
  const int thread = runner.current_;
  threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
  (*runner.kernel_)();
  if (!runner.fibers_[thread].copies.empty()) {
    Refuse("a thread ends with copies that it has not waited for");
  }
  runner.GoOn(State::kDone);
}

}  // namespace

void* SharedMemoryOfBlock() { return Runner().shared(); }

uint64_t Exchange(uint64_t bits, int lane) {
  BlockRunner& runner = Runner();
  const int thread = static_cast<int>(threadIdx.x);
  const int turn = runner.fiber(thread).exchanges++ % 2;
  runner.exchanged(turn, thread) = bits;
  runner.Yield(State::kAtWarp);
  return runner.exchanged(turn, thread / kWarpLanes * kWarpLanes + lane);
}

namespace {

constexpr int kMatrixRows = 8;

Fiber& LaneFiber(int lane) {
  return Runner().fiber(static_cast<int>(threadIdx.x) / kWarpLanes * kWarpLanes + lane);
}
Fiber& MyFiber() { return Runner().fiber(static_cast<int>(threadIdx.x)); }

float First(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float Second(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

// d += a * b, as the warp's lanes have given them.
void MultiplyFragments() {
  float a[16][16], b[16][8], d[16][8] = {};
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const Fragments& given = LaneFiber(lane).fragments;
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      float* const at = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
      at[0] = First(given.a[i]);
      at[1] = Second(given.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * t + i * 8][g] = First(given.b[i]);
      b[2 * t + i * 8 + 1][g] = Second(given.b[i]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      LaneFiber(lane).fragments.d[i] += d[g + i / 2 * 8][2 * t + i % 2];
    }
  }
}

uint32_t MatrixElement(int matrix, int row, int column) {
  const auto* const address = std::bit_cast<const char*>(LaneFiber(8 * matrix + row).given);
  uint16_t bits = 0;
  std::memcpy(&bits, address + 2 * column, 2);
  return bits;
}

// The addresses that the warp's lanes have given.
void CheckMatrixRows() {
  const auto base = reinterpret_cast<uint64_t>(Runner().shared());
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned banks = 0;
    for (int row = 0; row < kMatrixRows; ++row) {
      const uint64_t offset = LaneFiber(kMatrixRows * matrix + row).given - base;
      if (offset % 16 != 0) Refuse("a matrix's row is not aligned to 16 bytes");
      banks |= 1u << (offset / 16 % 8);
    }
    if (banks != 0xff) Refuse("a matrix's rows share banks of shared memory");
  }
}

void Matrices(const void* row, bool transposed, uint32_t (&to)[4]) {
  BlockRunner& runner = Runner();
  MyFiber().given = reinterpret_cast<uint64_t>(row);
  runner.Yield(State::kAtWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes, g = lane / 4, t = lane % 4;
  if (lane == 0) CheckMatrixRows();
  for (int j = 0; j < 4; ++j) {
    to[j] = transposed ? MatrixElement(j, 2 * t, g) | MatrixElement(j, 2 * t + 1, g) << 16
                       : MatrixElement(j, g, 2 * t) | MatrixElement(j, g, 2 * t + 1) << 16;
  }
  runner.Yield(State::kAtWarp);  // all have read
}

}  // namespace

void MultiplyBf16(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&d)[4]) {
  BlockRunner& runner = Runner();
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  LaneFiber(lane).fragments = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  runner.Yield(State::kAtWarp);
  // The first lane to go on multiplies for all.
  bool& multiplied = LaneFiber(0).multiplied;
  if (!std::exchange(multiplied, true)) MultiplyFragments();
  for (int i = 0; i < 4; ++i) d[i] = LaneFiber(lane).fragments.d[i];
  runner.Yield(State::kAtWarp);
  multiplied = false;
}

void LoadMatrices(const void* row, uint32_t (&to)[4]) { Matrices(row, false, to); }
void LoadMatricesTransposed(const void* row, uint32_t (&to)[4]) { Matrices(row, true, to); }

void CopyAsync(void* shared, const void* global, bool there) {
  if (reinterpret_cast<uint64_t>(shared) % 16 != 0 ||
      reinterpret_cast<uint64_t>(global) % 16 != 0) {
    Refuse("a copy of 16 bytes is not aligned to them");
  }
  Fiber& fiber = MyFiber();
  fiber.copies.push_back({shared, there ? global : nullptr, fiber.group});
}

void CheckWords(const void* address, int words) {
  if (reinterpret_cast<uintptr_t>(address) % (4 * static_cast<uintptr_t>(words)) != 0) {
    Refuse("words are moved at once that are not aligned so");
  }
}

void CommitCopies() { ++MyFiber().group; }

void WaitForCopies(int groups) {
  Fiber& fiber = MyFiber();
  std::erase_if(fiber.copies, [&](const AsyncCopy& copy) {
    if (copy.group >= fiber.group - groups) return false;
    if (copy.global == nullptr) {
      std::memset(copy.shared, 0, 16);
    } else {
      std::memcpy(copy.shared, copy.global, 16);
    }
    return true;
  });
}

void SetReverse(bool reverse) { reverse_order = reverse; }

void SetKernelFault(const std::string& place, KernelFault fault) {
  if (place == "vector_loads") {
    load_fault = fault;
  } else {
    kernel_faults[place] = fault;
  }
}

void SpoilLoad(uint32_t* word) {
  if (load_fault == KernelFault::kWrong) *word ^= 1u << 21;
  if (load_fault == KernelFault::kNan) *word = ~0u;
}

void RunKernel(const char* file, dim3 grid, int threads, int shared,
               const std::function<void()>& kernel) {
  const auto found = kernel_faults.find(file);
  const KernelFault fault = found == kernel_faults.end() ? KernelFault::kNone : found->second;
  while (fault == KernelFault::kHang) pause();
  if (fault == KernelFault::kCrash) raise(SIGSEGV);
  static std::atomic<int> launches{0};
  const bool wrong = fault == KernelFault::kWrong ||
                     (fault == KernelFault::kUnsteady && launches.fetch_add(1) % 2 == 1);
  gridDim = grid;
  blockDim = dim3(static_cast<unsigned>(threads), 1, 1);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      if (wrong && x + 1 == grid.x) continue;
      blockIdx = dim3(x, y, 0);
      Runner().Run(threads, shared, kernel);
    }
  }
}

}  // namespace megatrain::cuda

void __syncthreads() { megatrain::cuda::Runner().Yield(megatrain::cuda::State::kAtBlock); }
void __syncwarp() { megatrain::cuda::Runner().Yield(megatrain::cuda::State::kAtWarp); }
