// A pool that runs the blocks of one loop at a time, the caller working too. Its threads may be
// bound to processors; then each can be given the blocks first whose memory is near to it.
//
// Thread safety: ParallelFor may be called from several threads (lanes); calls are served one at a
// time, so a pool of T threads never keeps more than T processors busy. Invariants: a result must
// not depend on which thread ran a block; every thread flushes denormals to zero.
#ifndef MEGATRAIN_ENGINE_BASE_THREAD_POOL_H_
#define MEGATRAIN_ENGINE_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/processors.h"

namespace megatrain {

// Sets flush-to-zero and denormals-are-zero for the calling thread: denormals make FP32 attention
// ten times slower.
void FlushDenormalsInThisThread();

class ThreadPool {
 public:
  // `threads` counts the caller: threads - 1 workers are started. With `processors` each worker
  // runs on one of them alone, in their order from the second on, and around again where there are
  // more workers; the caller, whose affinity stays its own, is left the first. REQUIRES: threads
  // >= 1.
  explicit ThreadPool(int threads, std::vector<Processor> processors = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs fn(block) for every block in [0, blocks) and returns when all are done. Blocks are claimed
  // dynamically, in order. fn must not throw and must not call ParallelFor of the same pool. With
  // `threads_max` above 0 only so many threads work: the caller and the first workers.
  void ParallelFor(int64_t blocks, absl::FunctionRef<void(int64_t block)> fn, int threads_max = 0);

  // As ParallelFor, but a thread claims the blocks of its own node first, then those of others.
  // `node_of` gives a block's NUMA node, below 0 where it has none.
  void ParallelForNear(int64_t blocks, absl::FunctionRef<int(int64_t block)> node_of,
                       absl::FunctionRef<void(int64_t block)> fn, int threads_max = 0);
  // Whether ParallelForNear does more than ParallelFor: the threads are on several nodes.
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
