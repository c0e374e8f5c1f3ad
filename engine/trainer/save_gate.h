// SaveGate merges the saves of all ranks of a process into one. Each rank's io lane calls the gate
// for a tile once that rank has updated it. The last rank to call saves the tile for all. The
// others block until then, so that no rank updates the tile before it is saved.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_ENGINE_TRAINER_SAVE_GATE_H_
#define MEGATRAIN_ENGINE_TRAINER_SAVE_GATE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {

class SaveGate {
 public:
  // `ranks` ranks use the gate. The rank that calls last runs the call of `calls`, on its own
  // thread. REQUIRES: ranks >= 1, and neither function of `calls` is empty.
  SaveGate(int ranks, SaveCalls calls) : ranks_(ranks), calls_(std::move(calls)) {}

  // Returns the calls for one rank. This must outlive them. REQUIRES: all ranks make the same calls
  // in the same order.
  SaveCalls ForRank();
  // Wakes the ranks that wait for another one to come. Those whose call of `calls` runs are woken
  // when it has returned. Later calls of the ranks do nothing. A rank that was woken must not
  // change the tile. REQUIRES: the exchange between the ranks was aborted before with `cause`.
  void Abort(const absl::Status& cause);
  // Returns the first cause, if it kept calls.finish from being called, else OK.
  absl::Status status();

 private:
  // Returns once all ranks have come and `call` has returned, or after Abort without a call.
  void Meet(const std::function<void()>& call);

  const int ranks_;
  const SaveCalls calls_;
  Mutex mutex_;
  CondVar changed_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t meetings_ ABSL_GUARDED_BY(mutex_) = 0;    // that are over
  bool calls_now_ ABSL_GUARDED_BY(mutex_) = false;  // all have come, and `call` runs
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINER_SAVE_GATE_H_
