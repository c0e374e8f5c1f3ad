#include "engine/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
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
// `fn`, `blocks`, `next`, `shares` and `workers_end` change only while the gate is closed and
// nobody is inside.
struct ThreadPool::State {
  // The blocks of one node, claimed in their order.
  struct Share {
    std::vector<int64_t> blocks;
    alignas(64) std::atomic<int64_t> next{0};
  };

  static constexpr uint64_t kOpen = uint64_t{1} << 16;
  static constexpr uint64_t kInside = kOpen - 1;
  static constexpr int kNumberShift = 17;

  Mutex callers;  // one loop at a time

  std::atomic<uint64_t> gate{0};
  const absl::FunctionRef<void(int64_t)>* fn = nullptr;
  int64_t blocks = 0;
  int workers_end = 0;  // workers from this number on leave the loop as they find it
  alignas(64) std::atomic<int64_t> next{0};

  std::vector<Processor> processors;  // empty: threads are not bound
  std::vector<int> nodes;             // of the processors, each once
  // One a node, for a loop by nodes; what is of no node of ours is shared out among them.
  std::vector<Share> shares;
  bool by_nodes = false;

  // A sleeper announces itself before it looks at `gate` for the last time, and whoever changes
  // `gate` looks for sleepers afterwards (all sequentially consistent), so no wake-up is lost.
  alignas(64) Mutex sleep;
  CondVar wake_workers;
  CondVar wake_caller;
  std::atomic<int> sleeping_workers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  std::vector<std::thread> workers;

  // `own` is the share of the thread's node.
  void RunBlocks(size_t own) {
    if (by_nodes) {
      for (size_t i = 0; i < shares.size(); ++i) RunShare(shares[(own + i) % shares.size()]);
      return;
    }
    for (;;) {
      const int64_t block = next.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks) return;
      (*fn)(block);
    }
  }
  void RunShare(Share& share) {
    for (;;) {
      const int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= static_cast<int64_t>(share.blocks.size())) return;
      (*fn)(share.blocks[static_cast<size_t>(index)]);
    }
  }

  // The share of a node; that of a node which is not ours is anyone's.
  size_t ShareOf(int node) const {
    const auto found = std::find(nodes.begin(), nodes.end(), node);
    return found == nodes.end() ? nodes.size() : static_cast<size_t>(found - nodes.begin());
  }
  // The share of the caller, which runs where the kernel puts it.
  size_t ShareOfThisThread() const {
    const int number = CurrentProcessor();
    for (const Processor& processor : processors) {
      if (processor.number == number) return ShareOf(processor.node);
    }
    return 0;
  }

  void WakeWorkers() {
    if (sleeping_workers.load() == 0) return;
    MutexLock lock(&sleep);
    wake_workers.NotifyAll();
  }

  void Work(int worker) {
    NameThisThread("pool");
    FlushDenormalsInThisThread();
    size_t own = 0;
    if (!processors.empty()) {
      const Processor& processor = processors[static_cast<size_t>(worker) % processors.size()];
      // One that is not bound is slower, not wrong.
      (void)BindThisThread(processor);
      own = ShareOf(processor.node);
    }
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
        if (worker < workers_end) RunBlocks(own);
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

ThreadPool::ThreadPool(int threads, std::vector<Processor> processors)
    : threads_(threads < 1 ? 1 : threads), state_(std::make_unique<State>()) {
  for (const Processor& processor : processors) {
    if (state_->ShareOf(processor.node) == state_->nodes.size()) {
      state_->nodes.push_back(processor.node);
    }
  }
  state_->processors = std::move(processors);
  state_->shares = std::vector<State::Share>(state_->nodes.size());
  for (int i = 1; i < threads_; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->WakeWorkers();
  for (std::thread& worker : state_->workers) worker.join();
}

bool ThreadPool::on_several_nodes() const { return state_->nodes.size() > 1; }

void ThreadPool::ParallelFor(int64_t blocks, absl::FunctionRef<void(int64_t block)> fn,
                             int threads_max) {
  MutexLock one_loop_at_a_time(&state_->callers);
  state_->by_nodes = false;
  Run(blocks, fn, threads_max);
}

void ThreadPool::ParallelForNear(int64_t blocks, absl::FunctionRef<int(int64_t block)> node_of,
                                 absl::FunctionRef<void(int64_t block)> fn, int threads_max) {
  if (!on_several_nodes()) return ParallelFor(blocks, fn, threads_max);
  MutexLock one_loop_at_a_time(&state_->callers);
  std::vector<State::Share>& shares = state_->shares;
  for (State::Share& share : shares) {
    share.blocks.clear();
    share.next.store(0, std::memory_order_relaxed);
  }
  for (int64_t block = 0; block < blocks; ++block) {
    const size_t share = state_->ShareOf(node_of(block));
    shares[share < shares.size() ? share : static_cast<size_t>(block) % shares.size()]
        .blocks.push_back(block);
  }
  state_->by_nodes = true;
  Run(blocks, fn, threads_max);
}

void ThreadPool::Run(int64_t blocks, absl::FunctionRef<void(int64_t block)> fn, int threads_max) {
  if (blocks <= 0) return;
  State& state = *state_;
  const ScopedFlushDenormals flush;
  if (blocks == 1 || threads_ == 1 || threads_max == 1) {
    for (int64_t block = 0; block < blocks; ++block) fn(block);
    return;
  }
  state.fn = &fn;
  state.blocks = blocks;
  state.workers_end = threads_max > 0 ? threads_max : threads_;
  state.next.store(0, std::memory_order_relaxed);
  const uint64_t number = (state.gate.load() >> State::kNumberShift) + 1;
  state.gate.store(number << State::kNumberShift | State::kOpen);
  state.WakeWorkers();
  state.RunBlocks(state.by_nodes ? state.ShareOfThisThread() : 0);
  state.gate.fetch_and(~State::kOpen);
  const auto all_left = [&] { return (state.gate.load() & State::kInside) == 0; };
  if (SpinUntil(all_left)) return;
  MutexLock lock(&state.sleep);
  state.caller_sleeps.store(true);
  while (!all_left()) state.wake_caller.Wait(&state.sleep);
  state.caller_sleeps.store(false);
}

}  // namespace megatrain
