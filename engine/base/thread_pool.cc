#include "engine/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/thread_name.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace megatrain {
namespace {

#if defined(__x86_64__)
// MXCSR bit 15 is flush-to-zero (results), bit 6 is denormals-are-zero (operands).
constexpr unsigned kFlushBits = 0x8040;
unsigned FloatMode() { return _mm_getcsr(); }
void SetFloatMode(unsigned mode) { _mm_setcsr(mode); }
void Pause() { _mm_pause(); }
#else
constexpr unsigned kFlushBits = 0;
unsigned FloatMode() { return 0; }
void SetFloatMode(unsigned) {}
void Pause() {}
#endif

// The caller's own floating-point mode comes back when a loop ends.
class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals() : saved_(FloatMode()) { SetFloatMode(saved_ | kFlushBits); }
  ~ScopedFlushDenormals() { SetFloatMode(saved_); }
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  const unsigned saved_;
};

// A layer is a chain of loops with a few microseconds between them; a sleep and a wake-up cost
// about as much as this, so waiting longer than it awake never costs more than twice the best.
constexpr std::chrono::microseconds kSpin(30);

// Polls `done` for kSpin; false if it never held.
template <typename Done>
bool SpinUntil(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

void FlushDenormalsInThisThread() { SetFloatMode(FloatMode() | kFlushBits); }

// `gate` holds all that the caller and the workers must agree on in one word:
//   bits 0..15 workers inside the loop, bit 16 open, bits 17.. the loop's number.
// A worker enters only while the gate is open, and the caller closes it once no block is left: a
// worker that wakes late finds it closed, and the caller waits only for those that are inside.
// `fn`, `blocks` and `next` change only while the gate is closed and nobody is inside.
struct ThreadPool::State {
  static constexpr uint64_t kOpen = uint64_t{1} << 16;
  static constexpr uint64_t kInside = kOpen - 1;
  static constexpr int kNumberShift = 17;

  Mutex callers;  // one loop at a time

  std::atomic<uint64_t> gate{0};
  const absl::FunctionRef<void(int64_t)>* fn = nullptr;
  int64_t blocks = 0;
  alignas(64) std::atomic<int64_t> next{0};

  // A sleeper announces itself before it looks at `gate` for the last time, and whoever changes
  // `gate` looks for sleepers afterwards (all sequentially consistent), so no wake-up is lost.
  alignas(64) Mutex sleep;
  CondVar wake_workers;
  CondVar wake_caller;
  std::atomic<int> sleeping_workers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  std::vector<std::thread> workers;

  void RunBlocks() {
    for (;;) {
      const int64_t block = next.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks) return;
      (*fn)(block);
    }
  }

  void WakeWorkers() {
    if (sleeping_workers.load() == 0) return;
    MutexLock lock(&sleep);
    wake_workers.NotifyAll();
  }

  void Work() {
    NameThisThread("pool");
    FlushDenormalsInThisThread();
    uint64_t last_number = 0;
    for (;;) {
      const auto has_work = [&] {
        const uint64_t value = gate.load();
        return stop.load() || ((value & kOpen) != 0 && (value >> kNumberShift) != last_number);
      };
      if (!SpinUntil(has_work)) {
        MutexLock lock(&sleep);
        sleeping_workers.fetch_add(1);
        while (!has_work()) wake_workers.Wait(&sleep);
        sleeping_workers.fetch_sub(1);
      }
      if (stop.load()) return;
      uint64_t value = gate.load();
      while ((value & kOpen) != 0 && (value >> kNumberShift) != last_number) {
        if (!gate.compare_exchange_weak(value, value + 1)) continue;
        last_number = value >> kNumberShift;
        RunBlocks();
        const uint64_t before = gate.fetch_sub(1);
        if ((before & kOpen) == 0 && (before & kInside) == 1 && caller_sleeps.load()) {
          MutexLock lock(&sleep);
          wake_caller.NotifyAll();
        }
        break;
      }
    }
  }
};

ThreadPool::ThreadPool(int threads)
    : threads_(threads < 1 ? 1 : threads), state_(std::make_unique<State>()) {
  for (int i = 1; i < threads_; ++i) {
    state_->workers.emplace_back([state = state_.get()] { state->Work(); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->WakeWorkers();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::ParallelFor(int64_t blocks, absl::FunctionRef<void(int64_t block)> fn) {
  if (blocks <= 0) return;
  State& state = *state_;
  MutexLock one_loop_at_a_time(&state.callers);
  const ScopedFlushDenormals flush;
  if (blocks == 1 || threads_ == 1) {
    for (int64_t block = 0; block < blocks; ++block) fn(block);
    return;
  }
  state.fn = &fn;
  state.blocks = blocks;
  state.next.store(0, std::memory_order_relaxed);
  const uint64_t number = (state.gate.load() >> State::kNumberShift) + 1;
  state.gate.store(number << State::kNumberShift | State::kOpen);
  state.WakeWorkers();
  state.RunBlocks();
  state.gate.fetch_and(~State::kOpen);
  const auto all_left = [&] { return (state.gate.load() & State::kInside) == 0; };
  if (SpinUntil(all_left)) return;
  MutexLock lock(&state.sleep);
  state.caller_sleeps.store(true);
  while (!all_left()) state.wake_caller.Wait(&state.sleep);
  state.caller_sleeps.store(false);
}

}  // namespace megatrain
