// Runs that are cancelled, that follow each other on a warm pool, that have nothing left to do, and
// whose output could not be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Steps of a minute, over a slow link: the first is not waited for.
TEST(TrainingCancelTest, AmidAStep) {
  const auto host = HostWithPool();
  JobSpec spec = HookedJob("cancel_amid");
  HookedRun undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host, spec).ok()) << undisturbed.run.status;
  spec = HookedJob("cancel_amid");
  spec.engine.link_gigabytes_per_second =
      1e-9 * static_cast<double>(undisturbed.run.records[0].h2d_bytes) / 60;
  std::thread canceller;
  hooked.started = [&](int64_t) {
    canceller = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // to be amid it, not before
      hooked.control.Cancel();
    });
  };
  const auto outcome = hooked.Train(*host, spec);
  canceller.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kCancelled);
  EXPECT_THAT(hooked.events, ElementsAre("started 1"));
  EXPECT_FALSE(HasCheckpoint(spec));
  ExpectPoolWhole(*host);
}

TEST(WarmPoolTest, ASecondJobTouchesNothingAnew) {
  const auto host = Host();
  std::vector<int64_t> touched;
  ASSERT_TRUE(
      host->ReservePool(
              kHookedPoolBytes, [&](int64_t bytes, int64_t) { touched.push_back(bytes); }, nullptr)
          .ok());
  EXPECT_THAT(touched, ElementsAre(kHookedPoolBytes));
  EXPECT_EQ(host->ReservePool(kHookedPoolBytes, nullptr, nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
  const JobSpec first = HookedJob("first"), second = HookedJob("second");
  HookedRun one, two;
  ASSERT_TRUE(one.Train(*host, first).ok()) << one.run.status;
  ExpectPoolWhole(*host);
  ASSERT_TRUE(two.Train(*host, second).ok()) << two.run.status;
  ExpectPoolWhole(*host);
  EXPECT_THAT(touched, ElementsAre(kHookedPoolBytes)) << "the first job's pool serves the second";
  // What the first left in the pool does not matter.
  ExpectSameRecords(two.run, one.run);
  ExpectSameFiles(second, first);
}

TEST(WarmPoolTest, AHostWithoutAPoolReservesWhatItsFirstJobPlans) {
  const auto host = Host();
  const JobSpec spec = HookedJob("unreserved");
  EXPECT_EQ(host->pool_usage().capacity, 0);
  HookedRun hooked;
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  EXPECT_EQ(host->pool_usage().capacity, PlanTraining(spec)->pool_bytes);
  EXPECT_EQ(host->pool_usage().free_bytes, host->pool_usage().capacity);
}

TEST(StepRecordOfARunTest, SaysWhatTheStepTook) {
  const auto host = HostWithPool();
  const JobSpec spec = HookedJob("records");
  HookedRun hooked;
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  const auto plan = PlanTraining(spec, host->budget(), PosixFileSystem());
  ASSERT_TRUE(plan.ok()) << plan.status();
  int64_t tokens = 0;
  for (const StepRecord& record : hooked.run.records) {
    SCOPED_TRACE(record.step);
    tokens += record.input_tokens;
    EXPECT_EQ(record.total_tokens, tokens);
    // The last token of a sequence has no target.
    EXPECT_EQ(record.tokens, record.input_tokens - spec.training.global_batch);
    EXPECT_EQ(record.host_bytes, plan->pool_bytes);
    EXPECT_EQ(record.device_bytes, plan->device_bytes);
    const auto input = static_cast<double>(record.input_tokens);
    EXPECT_DOUBLE_EQ(record.tokens_per_second, input / record.step_seconds);
    EXPECT_DOUBLE_EQ(record.model_flops_per_second,
                     6 * static_cast<double>(plan->parameters) * record.tokens_per_second);
    EXPECT_GT(record.h2d_bytes, 0);
    // The gradients of all parameters, in FP32.
    EXPECT_GE(record.d2h_bytes, 4 * plan->parameters);
    EXPECT_GT(record.forward_seconds, 0);
    EXPECT_GT(record.matmul_seconds, 0);
    EXPECT_GT(record.lane_busy_seconds.compute, 0);
    EXPECT_FALSE(record.compute_seconds.empty());
  }
}

TEST(TrainingAliveTest, OperationsOfAFirstStepSayThatTheRunGoesOn) {
  const auto host = HostWithPool();
  JobSpec spec = HookedJob("alive");
  spec.engine.link_gigabytes_per_second = 0.01;  // so that the loop waits for most operations
  HookedRun hooked;
  std::atomic<int> calls = 0;
  int of_first = 0;
  hooked.alive = [&] { ++calls; };
  hooked.started = [&](int64_t) { calls = 0; };
  hooked.step = [&](int64_t step) {
    if (step == 1) of_first = calls;
  };
  ASSERT_TRUE(hooked.Train(*host, spec).ok()) << hooked.run.status;
  EXPECT_GT(of_first, 5) << "a step has more operations";
}

// Every place where preparing tells what it does, and every place where it asks whether to go on.
TEST(TrainingCancelTest, IsAbandonedWhilePreparing) {
  const auto host = HostWithPool();
  JobSpec saved = HookedJob("cancel_resumed");
  HookedRun before;
  before.step = [&](int64_t step) {
    if (step == 1) before.control.Stop();
  };
  ASSERT_TRUE(before.Train(*host, saved).ok()) << before.run.status;
  JobSpec fresh = HookedJob("cancel_fresh");
  JobSpec random = HookedJob("cancel_random");
  random.model.random_initialization = true;
  for (const JobSpec* spec : {&saved, &fresh, &random}) {
    for (const auto& [ask, outcome] :
         std::vector<std::pair<void (*)(TrainingControl&), TrainingOutcome>>{
             {[](TrainingControl& c) { c.Cancel(); }, TrainingOutcome::kCancelled},
             {[](TrainingControl& c) { c.Stop(); }, TrainingOutcome::kInterrupted},
             {[](TrainingControl& c) { c.Release(); }, TrainingOutcome::kReleased}}) {
      std::set<std::string> activities;
      bool reached = true;
      for (int at = 1; reached; ++at) {
        HookedRun hooked;
        int questions = 0;
        bool prepared = false;
        const auto count = [&, ask = ask] {
          if (!prepared && ++questions == at) ask(hooked.control);
        };
        hooked.alive = count;
        hooked.activity = [&](const TrainingActivity& now) {
          if (now.phase == TrainingPhase::kPreparing) activities.insert(now.what);
          count();
        };
        hooked.started = [&](int64_t) {
          prepared = true;
          hooked.control.Cancel();
        };
        const auto end = hooked.Train(*host, *spec);
        ASSERT_TRUE(end.ok()) << end.status();
        reached = questions >= at;
        EXPECT_EQ(*end, reached ? outcome : TrainingOutcome::kCancelled);
        EXPECT_TRUE(hooked.run.records.empty());
        for (const std::string& line : hooked.run.messages)
          EXPECT_THAT(line, ::testing::Not(HasSubstr("damaged")));
        ExpectPoolWhole(*host);
      }
      EXPECT_GE(activities.size(), 4u);
    }
  }
  EXPECT_FALSE(HasCheckpoint(fresh));
  EXPECT_TRUE(HasCheckpoint(saved));
}

// Wherever a save asks whether to go on: nothing half-written gets a name.
TEST(TrainingCancelTest, ASaveIsAbandoned) {
  const auto host = HostWithPool();
  const JobSpec plain = HookedJob("plain_save");
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host, plain).ok()) << undisturbed.run.status;
  bool cancelled = true;
  for (int at = 1; cancelled; at += 7) {
    const JobSpec spec = HookedJob("cancelled_save");
    HookedRun hooked;
    std::atomic<int> questions{0};
    std::atomic<bool> saving{false};
    hooked.before_checkpoint = [&](int64_t) { saving = true; };
    hooked.alive = [&] {
      if (saving && ++questions == at) hooked.control.Cancel();
    };
    const auto outcome = hooked.Train(*host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    cancelled = *outcome == TrainingOutcome::kCancelled;
    EXPECT_EQ(HasCheckpoint(spec), !cancelled) << at;
    ExpectPoolWhole(*host);
    if (!cancelled) ExpectSameFiles(spec, plain);
  }
}

TEST(FinishedRunTest, TellsSoAndEnds) {
  const auto host = HostWithPool();
  const JobSpec spec = HookedJob("finished");
  HookedRun first, second;
  ASSERT_TRUE(first.Train(*host, spec).ok()) << first.run.status;
  const auto outcome = second.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  EXPECT_THAT(second.events, ElementsAre("started 5"));
}

// Days of work may lie before the last step.
TEST(OutputOfARunTest, ADirectoryThatIsNotReplacedIsRefusedBeforeTheFirstStep) {
  const auto host = HostWithPool();
  JobSpec spec = HookedJob("not_replaced");
  const std::string output = FreshDirectory("output"), foreign = output + "/thesis.tex";
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), foreign, "x").ok());
  const std::string beside = FreshDirectory("beside") + "/out";
  ASSERT_TRUE(PosixFileSystem()->CreateDirectories(beside + ".export-previous/mine").ok());
  for (const auto& [directory, why] :
       {std::pair(output, "thesis.tex"), std::pair(spec.model.path, "the model was read from"),
        std::pair(beside, "it holds mine")}) {
    spec.output.directory = directory;
    HookedRun refused;
    const absl::Status status = refused.Train(*host, spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("output.directory: "), HasSubstr(why)));
    EXPECT_THAT(refused.events, IsEmpty());
    EXPECT_FALSE(HasCheckpoint(spec));
    ExpectPoolWhole(*host);
  }
  ASSERT_TRUE(PosixFileSystem()->RemoveFile(foreign).ok());
  spec.output.directory = output;
  HookedRun allowed;
  ASSERT_TRUE(allowed.Train(*host, spec).ok()) << allowed.run.status;
  EXPECT_TRUE(PosixFileSystem()->FileExists(output + "/config.json"));
}

}  // namespace
}  // namespace megatrain
