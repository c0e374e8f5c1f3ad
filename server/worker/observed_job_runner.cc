#include "server/worker/observed_job_runner.h"

#include <memory>
#include <utility>

namespace megatrain {
namespace {

// A callback that tells the observers by `tell`, then calls `then`.
template <class... Args, class Tell>
std::function<void(Args...)> Observed(const std::vector<RunObserver*>& observers, Tell tell,
                                      std::function<void(Args...)> then) {
  return [observers, tell, then = std::move(then)](Args... args) {
    for (RunObserver* const observer : observers) tell(observer, args...);
    if (then) then(args...);
  };
}

}  // namespace

absl::Status ObservedJobRunner::Start(RunRequest request, RunCallbacks callbacks) {
  // The callbacks hold it; a run may outlive this runner.
  const auto run =
      std::make_shared<const ObservedRun>(ObservedRun{request.job_id, request.uid, request.spec});
  const auto tell = [run](auto member) {
    return [run, member](RunObserver* observer, const auto&... args) {
      (observer->*member)(*run, args...);
    };
  };
  RunCallbacks observed = callbacks;
  observed.preparing =
      Observed(observers_, tell(&RunObserver::Preparing), std::move(callbacks.preparing));
  observed.running =
      Observed(observers_, tell(&RunObserver::Running), std::move(callbacks.running));
  observed.step = Observed(observers_, tell(&RunObserver::Step), std::move(callbacks.step));
  observed.checkpoint = Observed(
      observers_,
      [run](RunObserver* observer, int64_t step, const std::string&, double seconds) {
        observer->Checkpoint(*run, step, seconds);
      },
      std::move(callbacks.checkpoint));
  observed.paused = Observed(observers_, tell(&RunObserver::Paused), std::move(callbacks.paused));
  observed.ended = Observed(observers_, tell(&RunObserver::Ended), std::move(callbacks.ended));
  return runner_->Start(std::move(request), std::move(observed));
}

}  // namespace megatrain
