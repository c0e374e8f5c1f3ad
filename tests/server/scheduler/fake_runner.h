// A JobRunner without an engine: notes what it is asked, and tells what the test makes it tell, as
// the contract in job_runner.h has it.
#ifndef MEGATRAIN_TESTS_SERVER_SCHEDULER_FAKE_RUNNER_H_
#define MEGATRAIN_TESTS_SERVER_SCHEDULER_FAKE_RUNNER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/worker/job_runner.h"

namespace megatrain {

// Thread safety: one thread.
class FakeRunner : public JobRunner {
 public:
  // "start a", "pause a", "release a", "resume a", "cancel a", "checkpoint a", "stop a", since the
  // last call.
  std::vector<std::string> Asked() { return std::exchange(asked_, {}); }
  bool Has(const std::string& id) const { return runs_.count(id) == 1; }
  const RunRequest& request(const std::string& id) const { return runs_.at(id).request; }

  // ---- What the engine would tell ----
  void Running(const std::string& id, int64_t first_step, int64_t total_steps) {
    runs_.at(id).active = true;
    runs_.at(id).callbacks.running(first_step, total_steps);
  }
  void Step(const std::string& id, int64_t step) {
    StepRecord record;
    record.step = step;
    record.step_seconds = 2;
    runs_.at(id).callbacks.step(record);
  }
  void Checkpointed(const std::string& id, int64_t step) {
    runs_.at(id).callbacks.checkpoint(step, absl::StrCat("step-", step), 1.5);
  }
  void Paused(const std::string& id, RunPause pause = {}) {
    runs_.at(id).active = false;
    runs_.at(id).callbacks.paused(pause);
  }
  void End(const std::string& id, RunEnd::Kind kind, RunFailure failure = RunFailure::kNone,
           const std::string& message = "it failed") {
    RunEnd end;
    end.kind = kind;
    end.failure = failure;
    if (kind == RunEnd::Kind::kFailed) end.status = absl::InternalError(message);
    const RunCallbacks callbacks = runs_.at(id).callbacks;
    runs_.erase(id);
    callbacks.ended(end);
  }
  // The process dies: nothing is told.
  void Die() { runs_.clear(); }

  absl::Status start_status;  // what Start answers

  // ---- JobRunner ----
  absl::Status Start(RunRequest request, RunCallbacks callbacks) override {
    const std::string id = request.job_id;
    asked_.push_back("start " + id);
    if (!start_status.ok()) return start_status;
    if (Has(id)) return absl::AlreadyExistsError("started already");
    if (OtherActive(id)) return absl::FailedPreconditionError("another is active");
    runs_[id] = {std::move(request), std::move(callbacks), true};
    return absl::OkStatus();
  }
  absl::Status Pause(const std::string& id, bool release_host) override {
    return Ask(release_host ? "release " : "pause ", id);
  }
  absl::Status Resume(const std::string& id) override {
    const absl::Status status = Ask("resume ", id);
    if (!status.ok()) return status;
    if (OtherActive(id)) return absl::FailedPreconditionError("another is active");
    runs_.at(id).active = true;
    return absl::OkStatus();
  }
  absl::Status Cancel(const std::string& id) override { return Ask("cancel ", id); }
  absl::Status Checkpoint(const std::string& id) override { return Ask("checkpoint ", id); }
  absl::Status Stop(const std::string& id) override { return Ask("stop ", id); }
  void Export(const std::string& checkpoint, const std::string& directory,
              std::shared_ptr<FileSystem>,
              std::function<void(const absl::Status& status)> done) override {
    asked_.push_back(absl::StrCat("export ", checkpoint, " to ", directory));
    done(absl::OkStatus());
  }

 private:
  struct Run {
    RunRequest request;
    RunCallbacks callbacks;
    bool active = false;
  };

  absl::Status Ask(const std::string& what, const std::string& id) {
    asked_.push_back(what + id);
    return Has(id) ? absl::OkStatus() : absl::NotFoundError("has ended");
  }
  bool OtherActive(const std::string& id) const {
    for (const auto& [other, run] : runs_) {
      if (other != id && run.active) return true;
    }
    return false;
  }

  std::map<std::string, Run> runs_;
  std::vector<std::string> asked_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_SCHEDULER_FAKE_RUNNER_H_
