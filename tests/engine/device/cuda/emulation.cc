#include "tests/engine/device/cuda/emulation.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#error "SwitchStack is written for x86-64"
#endif

// Keeps what a call must keep on the stack, leaves the stack's place in *from and goes on with
// `to`. swapcontext would do, but asks the kernel for the signal mask each time: a hundred times
// slower.
extern "C" void SwitchStack(void** from, void* to);
__asm__(
    ".text\n"
    ".globl SwitchStack\n"
    ".type SwitchStack, @function\n"
    "SwitchStack:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size SwitchStack, . - SwitchStack\n");

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace megatrain::cuda {
namespace {

constexpr int kWarpLanes = 32;
// Sanitizers' frames are larger.
constexpr size_t kStackBytes = size_t{256} << 10;

std::atomic<bool> reverse_order{false};

enum class State { kRuns, kAtBlock, kAtWarp, kDone };

struct Fiber {
  std::unique_ptr<char[]> stack;
  void* place = nullptr;  // on its stack, while it does not run
  State state = State::kDone;
  uint64_t given = 0;  // to the lanes of its warp
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
#endif
};

// The blocks that one host thread runs, one after the other.
class BlockRunner {
 public:
  ~BlockRunner() {
#if defined(__SANITIZE_THREAD__)
    for (Fiber& fiber : fibers_) __tsan_destroy_fiber(fiber.tsan);
#endif
  }

  void Run(int threads, int shared, const std::function<void()>& kernel) {
    Prepare(threads, shared, kernel);
    const bool reverse = reverse_order;
    while (true) {
      bool any = false;
      for (int i = 0; i < threads; ++i) {
        const int thread = reverse ? threads - 1 - i : i;
        if (fibers_[thread].state == State::kRuns) {
          any = true;
          Resume(thread);
        }
      }
      if (any) continue;
      if (!Release()) return;
    }
  }

  // Called by fibers.
  void Yield(State state) {
    Fiber& fiber = fibers_[current_];
    fiber.state = state;
    const dim3 mine = threadIdx;
    Switch(false);
    threadIdx = mine;
  }
  void* shared() { return shared_; }
  Fiber& fiber(int thread) { return fibers_[thread]; }

 private:
  void Prepare(int threads, int shared, const std::function<void()>& kernel) {
    threads_ = threads;
    kernel_ = &kernel;
    if (fibers_.size() < static_cast<size_t>(threads)) fibers_.resize(threads);
    for (int i = 0; i < threads; ++i) {
      Fiber& fiber = fibers_[i];
      if (fiber.stack == nullptr) {
        fiber.stack.reset(new char[kStackBytes]);
#if defined(__SANITIZE_THREAD__)
        fiber.tsan = __tsan_create_fiber(0);
#endif
      }
      // As SwitchStack leaves it: six registers, then where to go on. On entry a function finds the
      // stack 8 bytes off a multiple of 16.
      void** top = reinterpret_cast<void**>(
          (reinterpret_cast<uintptr_t>(fiber.stack.get()) + kStackBytes) / 16 * 16);
      *--top = nullptr;  // nothing is returned to
      *--top = reinterpret_cast<void*>(&BlockRunner::Start);
      for (int r = 0; r < 6; ++r) *--top = nullptr;
      fiber.place = top;
      fiber.state = State::kRuns;
    }
    // Exactly as long as asked, and nothing that a kernel could use unwritten.
    shared_block_.reset(new double[(static_cast<size_t>(shared) + 7) / 8]);
    shared_ = shared_block_.get();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < shared / 4; ++i) std::memcpy(static_cast<char*>(shared_) + 4 * i, &nan, 4);
  }

  static void Start();

  void Resume(int thread) {
    current_ = thread;
    threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
    Switch(true);
  }

  // Between the scheduler and fiber current_.
  void Switch(bool to_fiber) {
    Fiber& fiber = fibers_[current_];
#if defined(__SANITIZE_ADDRESS__)
    if (to_fiber) {
      __sanitizer_start_switch_fiber(&fake_stack_, fiber.stack.get(), kStackBytes);
    } else {
      __sanitizer_start_switch_fiber(fiber.state == State::kDone ? nullptr : &fiber.fake_stack,
                                     scheduler_stack_, scheduler_stack_bytes_);
    }
#endif
#if defined(__SANITIZE_THREAD__)
    if (to_fiber) {
      tsan_scheduler_ = __tsan_get_current_fiber();
      __tsan_switch_to_fiber(fiber.tsan, 0);
    } else {
      __tsan_switch_to_fiber(tsan_scheduler_, 0);
    }
#endif
    if (to_fiber) {
      SwitchStack(&scheduler_, fiber.place);
    } else {
      SwitchStack(&fiber.place, scheduler_);
    }
#if defined(__SANITIZE_ADDRESS__)
    if (to_fiber) {
      __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
    } else {
      __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
    }
#endif
  }

  // Lets those go on that have all met; false when all are done.
  bool Release() {
    bool released = false;
    int done = 0, at_block = 0;
    for (int first = 0; first < threads_; first += kWarpLanes) {
      const int end = std::min(first + kWarpLanes, threads_);
      int at_warp = 0;
      for (int i = first; i < end; ++i) {
        at_warp += fibers_[i].state == State::kAtWarp;
        at_block += fibers_[i].state == State::kAtBlock;
        done += fibers_[i].state == State::kDone;
      }
      if (at_warp == end - first) {
        for (int i = first; i < end; ++i) fibers_[i].state = State::kRuns;
        released = true;
      }
    }
    if (released) return true;
    if (done == threads_) return false;
    if (at_block != threads_) {
      std::fprintf(
          stderr,
          "block (%u, %u): %d of %d threads wait in __syncthreads, %d have ended, the rest "
          "wait for their warps: they never meet\n",
          blockIdx.x, blockIdx.y, at_block, threads_, done);
      std::abort();
    }
    for (int i = 0; i < threads_; ++i) fibers_[i].state = State::kRuns;
    return true;
  }

  int threads_ = 0, current_ = 0;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<Fiber> fibers_;
  void* scheduler_ = nullptr;
  std::unique_ptr<double[]> shared_block_;
  void* shared_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_scheduler_ = nullptr;
#endif
};

BlockRunner& Runner() {
  static thread_local BlockRunner runner;
  return runner;
}

void BlockRunner::Start() {
  BlockRunner& runner = Runner();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &runner.scheduler_stack_,
                                  &runner.scheduler_stack_bytes_);
#endif
  (*runner.kernel_)();
  Fiber& fiber = runner.fibers_[runner.current_];
  fiber.state = State::kDone;
  runner.Switch(false);
}

}  // namespace

void* SharedMemoryOfBlock() { return Runner().shared(); }

uint64_t Exchange(uint64_t bits, int lane) {
  BlockRunner& runner = Runner();
  const int thread = static_cast<int>(threadIdx.x);
  runner.fiber(thread).given = bits;
  runner.Yield(State::kAtWarp);
  const uint64_t got = runner.fiber(thread / kWarpLanes * kWarpLanes + lane).given;
  runner.Yield(State::kAtWarp);  // all have read
  return got;
}

void SetReverse(bool reverse) { reverse_order = reverse; }

void RunKernel(dim3 grid, int threads, int shared, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = dim3(static_cast<unsigned>(threads), 1, 1);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y, 0);
      Runner().Run(threads, shared, kernel);
    }
  }
}

}  // namespace megatrain::cuda

void __syncthreads() { megatrain::cuda::Runner().Yield(megatrain::cuda::State::kAtBlock); }
