#include "engine/trainer/save_gate.h"

#include <utility>

namespace megatrain {

SaveCalls SaveGate::ForRank() {
  return {
      [this](int index, const ProcessTile& tile) { Meet([&] { calls_.take_tile(index, tile); }); },
      [this] {
        Meet([this] {
          calls_.finish();
          MutexLock lock(&mutex_);
          finished_ = true;
        });
      }};
}

void SaveGate::Meet(const std::function<void()>& call) {
  {
    MutexLock lock(&mutex_);
    if (!cause_.ok()) return;
    if (++arrived_ < ranks_) {
      const int64_t meeting = meetings_;
      while (meetings_ == meeting && (cause_.ok() || calls_now_)) changed_.Wait(&mutex_);
      return;
    }
    calls_now_ = true;
  }
  call();
  MutexLock lock(&mutex_);
  calls_now_ = false;
  arrived_ = 0;
  ++meetings_;
  changed_.NotifyAll();
}

void SaveGate::Abort(const absl::Status& cause) {
  MutexLock lock(&mutex_);
  cause_.Update(cause);
  changed_.NotifyAll();
}

absl::Status SaveGate::status() {
  MutexLock lock(&mutex_);
  return finished_ ? absl::OkStatus() : cause_;
}

}  // namespace megatrain
