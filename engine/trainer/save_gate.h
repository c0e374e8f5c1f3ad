// SaveGate makes one save of the saves of all ranks of a process. Each rank's io lane comes with a
// tile once its own update of it is done, and all come with the tiles in the same order. The last
// one takes the tile for all of them. The others wait meanwhile, so that their next updates of the
// tile wait too.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_ENGINE_TRAINER_SAVE_GATE_H_
#define MEGATRAIN_ENGINE_TRAINER_SAVE_GATE_H_

#include <cstdint>
#include <functional>

#include "engine/base/mutex.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {

class SaveGate {
 public:
  // `calls` are made by the last rank that comes.
  SaveGate(int ranks, SaveCalls calls) : ranks_(ranks), calls_(std::move(calls)) {}

  // Returns the calls for one rank. This must outlive them.
  SaveCalls ForRank();
  // Lets all that wait go on. No further call is made.
  void Abort();

 private:
  // Returns once all ranks have come and `call` has returned, or after Abort.
  void Meet(const std::function<void()>& call);

  const int ranks_;
  const SaveCalls calls_;
  Mutex mutex_;
  CondVar changed_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t meetings_ ABSL_GUARDED_BY(mutex_) = 0;  // that are over
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINER_SAVE_GATE_H_
