#include "engine/trainer/save_gate.h"

#include <utility>

namespace megatrain {

SaveCalls SaveGate::ForRank() {
  return {
      [this](int index, const ProcessTile& tile) { Meet([&] { calls_.take_tile(index, tile); }); },
      [this] { Meet(calls_.finish); }};
}

void SaveGate::Meet(const std::function<void()>& call) {
  {
    MutexLock lock(&mutex_);
    if (aborted_) return;
    if (++arrived_ < ranks_) {
      const int64_t meeting = meetings_;
      while (meetings_ == meeting && !aborted_) changed_.Wait(&mutex_);
      return;
    }
  }
  call();
  MutexLock lock(&mutex_);
  arrived_ = 0;
  ++meetings_;
  changed_.NotifyAll();
}

void SaveGate::Abort() {
  MutexLock lock(&mutex_);
  aborted_ = true;
  changed_.NotifyAll();
}

}  // namespace megatrain
