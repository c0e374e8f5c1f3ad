// Cancellation ends calls from another thread.
//
// Thread safety: any thread may call Cancel, one thread at a time the other methods.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CANCELLATION_H_
#define MEGATRAIN_CLIENT_CONNECTION_CANCELLATION_H_

#include <grpcpp/client_context.h>

#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace megatrain::client {

class Cancellation {
 public:
  // Cancels the call under way, and ends Sleep. Calls that begin later are not made. May be called
  // repeatedly.
  void Cancel() {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
    changed_.NotifyAll();
  }

  // The methods below return false once Cancel was called.

  // Must be called before a call is made with `context`. If it returns false, the call must not be
  // made.
  bool Begin(grpc::ClientContext* context) {
    MutexLock lock(&mutex_);
    if (!cancelled_) context_ = context;
    return !cancelled_;
  }
  // Must be called after the call, before its context is destroyed.
  bool End() {
    MutexLock lock(&mutex_);
    context_ = nullptr;
    return !cancelled_;
  }
  // Waits for `pause` at most; it may return earlier.
  bool Sleep(absl::Duration pause) {
    MutexLock lock(&mutex_);
    if (!cancelled_ && pause > absl::ZeroDuration()) {
      changed_.WaitFor(&mutex_, absl::ToDoubleSeconds(pause));
    }
    return !cancelled_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the call under way
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CANCELLATION_H_
