// A thread pool for parallel loops: it runs the blocks of one loop at a time, and the calling
// thread works too. Workers may be bound to processors; a loop can then prefer the threads that are
// near to the memory of a block.
//
// Thread safety: ParallelFor and ParallelForNear may be called from several threads, such as the
// lanes (engine/pipeline/schedule/lane.h). Calls are served one at a time, so a pool of T threads
// keeps at most T processors busy.
//
// Invariant: on x86-64, denormals are flushed to zero on every thread that runs a block.
#ifndef MEGATRAIN_ENGINE_BASE_THREAD_POOL_H_
#define MEGATRAIN_ENGINE_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/processors.h"

namespace megatrain {

// Sets flush-to-zero and denormals-are-zero for the calling thread (on x86-64; nothing elsewhere).
// Denormals make FP32 attention ten times slower.
void FlushDenormalsInThisThread();

class ThreadPool {
 public:
  // `threads` counts the caller, so threads - 1 workers are started. With `processors`, worker i,
  // from 1 on, is bound to processors[i % size], or to none if the process may not use that one.
  // The caller's affinity does not change. Unless there are more threads than processors, no worker
  // is bound to processors[0], which is left for the caller. REQUIRES: threads >= 1.
  explicit ThreadPool(int threads, std::vector<Processor> processors = {});
  // REQUIRES: no loop runs.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Waits for the loops of other callers, runs fn(block) for every block in [0, blocks), and
  // returns when all are done. Threads claim blocks dynamically, in ascending order. The results of
  // `fn` must not depend on the thread that runs it. `fn` must not throw, and must not start
  // another loop on the same pool, which would never end. With `threads_max` above 0 at most that
  // many threads work, the caller among them.
  void ParallelFor(int64_t blocks, absl::FunctionRef<void(int64_t block)> fn, int threads_max = 0);

  // Does as ParallelFor, but a thread claims the blocks of its own NUMA node first and those of
  // other nodes afterwards. `node_of` returns a block's node, or a negative number if it has none;
  // blocks without a node of the pool's processors are dealt out among all. `node_of` is called on
  // the calling thread, before the loop begins, and only if on_several_nodes().
  void ParallelForNear(int64_t blocks, absl::FunctionRef<int(int64_t block)> node_of,
                       absl::FunctionRef<void(int64_t block)> fn, int threads_max = 0);
  // Returns true if the constructor's `processors` are on several nodes, so that ParallelForNear
  // differs from ParallelFor.
  bool on_several_nodes() const;

 private:
  struct State;
  // REQUIRES: no other loop runs.
  void Run(int64_t blocks, absl::FunctionRef<void(int64_t block)> fn, int threads_max);

  const int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_THREAD_POOL_H_
