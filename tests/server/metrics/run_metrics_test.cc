#include "server/metrics/run_metrics.h"

#include <gtest/gtest.h>

#include "tests/server/metrics/test_page.h"

namespace megatrain {
namespace {

TEST(RunMetricsTest, ARunIsOnThePage) {
  DaemonMetrics metrics("1.2.3", "cpu");
  int described = 0;
  RunMetrics observer(&metrics, [&](const RunRequest& run) {
    ++described;
    MeasuredJob job = TestMeasuredJob("");
    job.model_family = run.spec.name;
    return job;
  });
  RunRequest run;
  run.job_id = "a1";
  run.spec.name = "qwen2";
  const auto samples = [&] { return PageSamples(metrics.Page(TestNode())); };
  const std::string info = "megatrain_job_info{job=\"a1\",model=\"qwen2\"}";

  observer.Tell(run, StepsBegin{1, 10});
  EXPECT_EQ(samples().count(info), 1u);
  observer.Tell(run, TestStep(1));
  observer.Tell(run, CheckpointSaved{1, "", 2.5});
  EXPECT_EQ(samples().at("megatrain_step"), "1");
  EXPECT_EQ(samples().at("megatrain_checkpoint_duration_seconds"), "2.5");
  observer.Tell(run, TrainingPause());
  EXPECT_EQ(samples().count(info), 0u);
  observer.Tell(run, StepsBegin{2, 10});
  EXPECT_EQ(samples().count(info), 1u);
  EXPECT_EQ(described, 2);

  RunEnd end;
  end.status = absl::AbortedError("loss is NaN");
  observer.Tell(run, end);
  EXPECT_EQ(samples().count(info), 0u);
  EXPECT_EQ(samples().at("megatrain_nonfinite_steps_total"), "1");
  end.status = absl::InternalError("it failed");
  observer.Tell(run, end);
  EXPECT_EQ(samples().at("megatrain_nonfinite_steps_total"), "1");
}

}  // namespace
}  // namespace megatrain
