// A JobRunner without an engine: notes what it is asked, and tells what the test makes it tell, as
// the contract in job_runner.h has it.
#ifndef MEGATRAIN_TESTS_SERVER_SCHEDULER_FAKE_RUNNER_H_
#define MEGATRAIN_TESTS_SERVER_SCHEDULER_FAKE_RUNNER_H_

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/worker/job_runner.h"

namespace megatrain {

inline bool Meet(const std::vector<int>& a, const std::vector<int>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

// Thread safety: one thread.
class FakeRunner : public JobRunner {
 public:
  // `observer` must outlive the runner.
  explicit FakeRunner(RunObserver* observer) : observer_(observer) {}

  // "start a", "pause a", "release a", "resume a", "cancel a", "checkpoint a", "stop a", since the
  // last call.
  std::vector<std::string> Asked() { return std::exchange(asked_, {}); }
  bool Has(const std::string& id) const { return runs_.count(id) == 1; }
  const RunRequest& request(const std::string& id) const { return runs_.at(id).request; }

  // ---- What the engine would tell ----
  void Running(const std::string& id, int64_t first_step, int64_t total_steps) {
    runs_.at(id).active = true;
    Tell(id, StepsBegin{first_step, total_steps});
  }
  void Step(const std::string& id, int64_t step) {
    StepRecord record;
    record.step = step;
    record.step_seconds = 2;
    Tell(id, record);
  }
  void Checkpointed(const std::string& id, int64_t step) {
    Tell(id, CheckpointSaved{step, absl::StrCat("step-", step), 1.5});
  }
  void Paused(const std::string& id, TrainingPause pause = {}) {
    runs_.at(id).active = false;
    Tell(id, pause);
  }
  void End(const std::string& id, RunEnd::Kind kind, absl::Status status = absl::OkStatus()) {
    if (kind == RunEnd::Kind::kFailed && status.ok()) status = absl::InternalError("it failed");
    const RunRequest request = runs_.at(id).request;
    runs_.erase(id);
    observer_->Tell(request, RunEnd{kind, std::move(status)});
  }
  // The process dies: nothing is told.
  void Die() { runs_.clear(); }

  absl::Status start_status;  // what Start answers

  // ---- JobRunner ----
  absl::Status Start(RunRequest request) override {
    const std::string id = request.job_id;
    asked_.push_back("start " + id);
    if (!start_status.ok()) return start_status;
    if (Has(id)) return absl::AlreadyExistsError("started already");
    if (OtherActive(id, request.devices)) {
      return absl::FailedPreconditionError("another is active");
    }
    runs_[id] = {std::move(request), true};
    return absl::OkStatus();
  }
  absl::Status Ask(const std::string& id, RunWish wish) override {
    static constexpr const char* kWishes[] = {"pause ",  "release ",    "resume ",
                                              "cancel ", "checkpoint ", "stop "};
    asked_.push_back(kWishes[static_cast<int>(wish)] + id);
    if (!Has(id)) return absl::NotFoundError("has ended");
    if (wish == RunWish::kResume) {
      if (OtherActive(id, request(id).devices)) {
        return absl::FailedPreconditionError("another is active");
      }
      runs_.at(id).active = true;
    }
    return absl::OkStatus();
  }

 private:
  struct Run {
    RunRequest request;
    bool active = false;
  };

  void Tell(const std::string& id, const JobRunEvent& event) {
    observer_->Tell(runs_.at(id).request, event);
  }
  bool OtherActive(const std::string& id, const std::vector<int>& devices) const {
    for (const auto& [other, run] : runs_) {
      if (other != id && run.active && Meet(run.request.devices, devices)) return true;
    }
    return false;
  }

  RunObserver* const observer_;
  std::map<std::string, Run> runs_;
  std::vector<std::string> asked_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_SCHEDULER_FAKE_RUNNER_H_
