#include "server/worker/observed_job_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/scheduler/fake_runner.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

class Notes : public RunObserver {
 public:
  explicit Notes(std::vector<std::string>* notes) : notes_(notes) {}

  void Preparing(const ObservedRun& run, const std::string& activity, double) override {
    Note(run, activity);
  }
  void Running(const ObservedRun& run, int64_t first_step, int64_t total_steps) override {
    Note(run, absl::StrCat("running ", first_step, " of ", total_steps));
  }
  void Step(const ObservedRun& run, const StepRecord& record) override {
    Note(run, absl::StrCat("step ", record.step));
  }
  void Checkpoint(const ObservedRun& run, int64_t step, double seconds) override {
    Note(run, absl::StrCat("checkpoint ", step, " in ", seconds));
  }
  void Paused(const ObservedRun& run, const RunPause&) override { Note(run, "paused"); }
  void Ended(const ObservedRun& run, const RunEnd&) override { Note(run, "ended"); }

 private:
  void Note(const ObservedRun& run, const std::string& what) {
    notes_->push_back(absl::StrCat(run.spec.name, ": ", what));
  }

  std::vector<std::string>* const notes_;
};

RunRequest Request(const std::string& id) {
  RunRequest request;
  request.job_id = id;
  request.spec.name = absl::StrCat("job ", id);
  return request;
}

TEST(ObservedJobRunnerTest, ObserversAreToldBeforeTheOwner) {
  std::vector<std::string> notes;
  FakeRunner fake;
  Notes observer(&notes);
  ObservedJobRunner runner(&fake, {&observer, &observer});
  RunCallbacks callbacks;
  callbacks.step = [&](const StepRecord&) { notes.push_back("owner: step"); };
  callbacks.ended = [&](const RunEnd&) { notes.push_back("owner: ended"); };
  ASSERT_TRUE(runner.Start(Request("a"), std::move(callbacks)).ok());
  fake.Running("a", 3, 9);
  fake.Step("a", 3);
  fake.Checkpointed("a", 3);
  fake.Paused("a");
  fake.End("a", RunEnd::Kind::kCancelled);
  EXPECT_THAT(notes, ElementsAre("job a: running 3 of 9", "job a: running 3 of 9", "job a: step 3",
                                 "job a: step 3", "owner: step", "job a: checkpoint 3 in 1.5",
                                 "job a: checkpoint 3 in 1.5", "job a: paused", "job a: paused",
                                 "job a: ended", "job a: ended", "owner: ended"));
}

TEST(ObservedJobRunnerTest, RequestsArePassedOn) {
  FakeRunner fake;
  ObservedJobRunner runner(&fake, {});
  ASSERT_TRUE(runner.Start(Request("a"), {}).ok());
  fake.Running("a", 1, 9);
  EXPECT_TRUE(runner.Checkpoint("a").ok());
  EXPECT_TRUE(runner.Pause("a", false).ok());
  EXPECT_TRUE(runner.Resume("a").ok());
  EXPECT_TRUE(runner.Stop("a").ok());
  EXPECT_TRUE(runner.Cancel("a").ok());
  runner.Export("c", "d", nullptr, [](const absl::Status&) {});
  EXPECT_THAT(fake.Asked(), ElementsAre("start a", "checkpoint a", "pause a", "resume a", "stop a",
                                        "cancel a", "export c to d"));
}

TEST(ObservedJobRunnerTest, ARefusedStartIsTheOwnersAlone) {
  std::vector<std::string> notes;
  FakeRunner fake;
  fake.start_status = absl::FailedPreconditionError("busy");
  Notes observer(&notes);
  ObservedJobRunner runner(&fake, {&observer});
  EXPECT_EQ(runner.Start(Request("a"), {}), fake.start_status);
  EXPECT_TRUE(notes.empty());
}

}  // namespace
}  // namespace megatrain
