#include "server/metrics/daemon_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/server/metrics/test_page.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Samples = std::map<std::string, std::string>;

// The contract: every name, its type and the names of its labels.
const std::map<std::string, std::pair<std::string, std::string>>& Contract() {
  static const auto& contract = *new std::map<std::string, std::pair<std::string, std::string>>{
      {"megatrain_build_info", {"gauge", "version,device"}},
      {"megatrain_jobs", {"gauge", "state"}},
      {"megatrain_job_info", {"gauge", "job,model"}},
      {"megatrain_step", {"gauge", ""}},
      {"megatrain_tokens_total", {"counter", ""}},
      {"megatrain_loss", {"gauge", ""}},
      {"megatrain_eval_loss", {"gauge", ""}},
      {"megatrain_eval_set_loss", {"gauge", "set"}},
      {"megatrain_reward", {"gauge", "answer"}},
      {"megatrain_reward_accuracy_ratio", {"gauge", ""}},
      {"megatrain_router_busiest_ratio", {"gauge", ""}},
      {"megatrain_router_entropy_nats", {"gauge", ""}},
      {"megatrain_gradient_norm", {"gauge", ""}},
      {"megatrain_learning_rate", {"gauge", ""}},
      {"megatrain_step_duration_seconds", {"histogram", ""}},
      {"megatrain_lane_busy_seconds_total", {"counter", "lane"}},
      {"megatrain_link_bytes_total", {"counter", "direction"}},
      {"megatrain_mfu_ratio", {"gauge", ""}},
      {"megatrain_nonfinite_steps_total", {"counter", ""}},
      {"megatrain_host_pool_bytes", {"gauge", "kind"}},
      {"megatrain_device_bytes", {"gauge", "kind"}},
      {"megatrain_device_busy", {"gauge", "device"}},
      {"megatrain_device_memory_bytes", {"gauge", "device"}},
      {"megatrain_slowest_rank", {"gauge", "lane"}},
      {"megatrain_slowest_rank_lane_busy_seconds", {"gauge", "lane"}},
      {"megatrain_rank_lane_busy_mean_seconds", {"gauge", "lane"}},
      {"megatrain_disk_size_bytes", {"gauge", ""}},
      {"megatrain_disk_free_bytes", {"gauge", ""}},
      {"megatrain_last_step_timestamp_seconds", {"gauge", ""}},
      {"megatrain_checkpoint_last_success_timestamp_seconds", {"gauge", ""}},
      {"megatrain_checkpoint_duration_seconds", {"gauge", ""}},
      {"megatrain_queue_wait_seconds", {"gauge", ""}},
      {"megatrain_jobs_ended_total", {"counter", "state,reason"}},
      {"megatrain_store_errors_total", {"counter", ""}},
      {"megatrain_grpc_requests_total", {"counter", "method,code"}},
      {"megatrain_authentication_failures_total", {"counter", "reason"}},
      {"megatrain_connections_refused_total", {"counter", "reason"}},
      {"megatrain_tls_certificate_expiry_timestamp_seconds", {"gauge", ""}},
      {"megatrain_device_missing", {"gauge", ""}},
      {"megatrain_device_changed_timestamp_seconds", {"gauge", ""}},
  };
  return contract;
}

std::string LabelNames(const std::string& sample) {
  const size_t brace = sample.find('{');
  if (brace == std::string::npos) return "";
  std::vector<std::string> names;
  for (const absl::string_view label :
       absl::StrSplit(sample.substr(brace + 1, sample.size() - brace - 2), ',')) {
    names.push_back(std::string(label.substr(0, label.find('='))));
  }
  return absl::StrJoin(names, ",");
}

TEST(DaemonMetricsTest, ThePageHasTheMetricsOfTheContractWithTheirTypesAndLabels) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  const std::string page = metrics.Page(TestNode());
  const auto types = PageTypes(page);
  EXPECT_EQ(types.size(), Contract().size());
  for (const auto& [name, what] : Contract()) {
    const auto& [type, labels] = what;
    ASSERT_EQ(types.count(name), 1u) << name;
    EXPECT_EQ(types.at(name), type) << name;
    bool found = type == "histogram";
    for (const auto& [sample, value] : PageSamples(page)) {
      if (sample != name && sample.rfind(name + "{", 0) != 0) continue;
      found = true;
      EXPECT_EQ(LabelNames(sample), labels);
    }
    EXPECT_TRUE(found) << name;
  }
}

TEST(DaemonMetricsTest, AnIdleDaemonHasEveryMetricAndNoJobs) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  MeasuredNode node;
  node.now = absl::FromUnixSeconds(1700000000);
  const std::string page = metrics.Page(node);
  EXPECT_EQ(PageTypes(page).size(), Contract().size());
  const Samples samples = PageSamples(page);
  EXPECT_EQ(samples.count("megatrain_step"), 0u);
  EXPECT_EQ(samples.at("megatrain_queue_wait_seconds"), "0");
  // Counters begin at 0, so that the first increase is seen.
  EXPECT_EQ(samples.at("megatrain_nonfinite_steps_total"), "0");
  EXPECT_EQ(samples.at("megatrain_tokens_total"), "0");
  for (const JobState state : AllJobStates()) {
    const std::string name = absl::StrCat("megatrain_jobs{state=\"", JobStateName(state), "\"}");
    EXPECT_EQ(samples.at(name), "0") << name;
  }
  node.device_missing = true;
  EXPECT_EQ(PageSamples(metrics.Page(node)).at("megatrain_device_missing"), "1");
}

TEST(DaemonMetricsTest, ValuesAreThoseThatWereTold) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  const Samples samples = PageSamples(metrics.Page(TestNode()));
  const Samples expected = {
      {"megatrain_build_info{version=\"1.2.3\",device=\"cpu\"}", "1"},
      {"megatrain_jobs{state=\"QUEUED\"}", "2"},
      {"megatrain_jobs{state=\"RUNNING\"}", "1"},
      {"megatrain_jobs{state=\"SUCCEEDED\"}", "1"},
      {"megatrain_jobs{state=\"PAUSED\"}", "0"},
      {"megatrain_queue_wait_seconds", "90"},
      {"megatrain_jobs_ended_total{state=\"FAILED\",reason=\"NON_FINITE\"}", "2"},
      {"megatrain_jobs_ended_total{state=\"FAILED\",reason=\"REPEATED_DEATHS\"}", "0"},
      {"megatrain_jobs_ended_total{state=\"SUCCEEDED\",reason=\"NONE\"}", "0"},
      {"megatrain_store_errors_total", "3"},
      {"megatrain_device_busy{device=\"cpu\"}", "1"},
      {"megatrain_device_memory_bytes{device=\"cpu\"}", "7000"},
      {"megatrain_slowest_rank{lane=\"compute\"}", "1"},
      {"megatrain_slowest_rank{lane=\"h2d\"}", "0"},
      {"megatrain_slowest_rank_lane_busy_seconds{lane=\"compute\"}", "0.15"},
      {"megatrain_rank_lane_busy_mean_seconds{lane=\"compute\"}", "0.1"},
      {"megatrain_job_info{job=\"id2\",model=\"llama\"}", "1"},
      {"megatrain_step", "2"},
      {"megatrain_loss", "2.5"},
      {"megatrain_eval_loss", "2.75"},
      {"megatrain_eval_set_loss{set=\"code\"}", "2.25"},
      {"megatrain_reward{answer=\"chosen\"}", "0.5"},
      {"megatrain_reward{answer=\"rejected\"}", "-0.25"},
      {"megatrain_reward_accuracy_ratio", "0.75"},
      {"megatrain_gradient_norm", "0.75"},
      {"megatrain_tokens_total", "2000"},
      {"megatrain_mfu_ratio", "0.25"},
      {"megatrain_step_duration_seconds_count", "2"},
      {"megatrain_step_duration_seconds_sum", "0.4"},
      {"megatrain_step_duration_seconds_bucket{le=\"0.1\"}", "0"},
      {"megatrain_step_duration_seconds_bucket{le=\"0.25\"}", "2"},
      {"megatrain_step_duration_seconds_bucket{le=\"+Inf\"}", "2"},
      {"megatrain_lane_busy_seconds_total{lane=\"h2d\"}", "0.1"},
      {"megatrain_lane_busy_seconds_total{lane=\"compute\"}", "0.3"},
      {"megatrain_lane_busy_seconds_total{lane=\"d2h\"}", "0.05"},
      {"megatrain_lane_busy_seconds_total{lane=\"update\"}", "0.2"},
      {"megatrain_lane_busy_seconds_total{lane=\"io\"}", "1"},
      {"megatrain_lane_busy_seconds_total{lane=\"device_update\"}", "0.6"},
      {"megatrain_lane_busy_seconds_total{lane=\"collective\"}", "0.25"},
      {"megatrain_link_bytes_total{direction=\"h2d\"}", "8000"},
      {"megatrain_link_bytes_total{direction=\"d2h\"}", "4000"},
      {"megatrain_host_pool_bytes{kind=\"tiles\"}", "1000"},
      {"megatrain_host_pool_bytes{kind=\"gradient_slabs\"}", "200"},
      {"megatrain_host_pool_bytes{kind=\"free\"}", "5000"},
      {"megatrain_device_bytes{kind=\"arena\"}", "100"},
      {"megatrain_disk_free_bytes", "536870912"},
      {"megatrain_disk_size_bytes", "1073741824"},
      {"megatrain_router_busiest_ratio", "1.5"},
      {"megatrain_router_entropy_nats", "0.875"},
      {"megatrain_learning_rate", "0.0003"},
      {"megatrain_device_missing", "0"},
      {"megatrain_device_changed_timestamp_seconds", "1699998000"},
      {"megatrain_tls_certificate_expiry_timestamp_seconds", "1705184000"},
      {"megatrain_authentication_failures_total{reason=\"TOKEN_EXPIRED\"}", "1"},
      {"megatrain_connections_refused_total{reason=\"NO_FILES_LEFT\"}", "1"},
      {"megatrain_checkpoint_duration_seconds", "12.5"},
      {"megatrain_grpc_requests_total{method=\"GetJob\",code=\"OK\"}", "2"},
      {"megatrain_grpc_requests_total{method=\"GetJob\",code=\"NOT_FOUND\"}", "1"},
      {"megatrain_grpc_requests_total{method=\"GetNode\",code=\"OK\"}", "1"},
      {"megatrain_grpc_requests_total{method=\"other\",code=\"OK\"}", "1"},
  };
  for (const auto& [sample, value] : expected) {
    ASSERT_EQ(samples.count(sample), 1u) << sample;
    EXPECT_DOUBLE_EQ(std::stod(samples.at(sample)), std::stod(value)) << sample;
  }
}

TEST(DaemonMetricsTest, ThePageNamesNobodyAndNothingOfTheirs) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  const std::string page = metrics.Page(TestNode());
  EXPECT_THAT(page, Not(HasSubstr("anna")));
  EXPECT_THAT(page, Not(HasSubstr("secret-plan")));
  EXPECT_THAT(page, Not(HasSubstr("id3")));
}

TEST(DaemonMetricsTest, StepsOfAnEndedJobStayUntilAnotherJobHasTheDevice) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  metrics.Tell(TestRun("id1"), RunEnd());  // another one
  EXPECT_THAT(metrics.Page(TestNode()), HasSubstr("job=\"id2\""));
  metrics.Tell(TestRun("id2"), TrainingPause());
  std::string page = metrics.Page(TestNode());
  EXPECT_THAT(page, Not(HasSubstr("id2")));
  EXPECT_EQ(PageSamples(page).at("megatrain_step"), "2");
  EXPECT_EQ(PageSamples(page).count("megatrain_device_bytes{kind=\"arena\"}"), 0u);

  // The same job goes on: its measures are still its own, but it has done no step of late.
  EXPECT_EQ(PageSamples(page).count("megatrain_last_step_timestamp_seconds"), 1u);
  metrics.Tell(TestRun("id2"), StepsBegin{1, 10});
  page = metrics.Page(TestNode());
  EXPECT_EQ(PageSamples(page).at("megatrain_step"), "2");
  EXPECT_EQ(PageSamples(page).count("megatrain_last_step_timestamp_seconds"), 0u);
  metrics.Tell(TestRun("id2"), TestStep(3));
  metrics.Tell(TestRun("id2"), StepsBegin{4, 10});  // it had no pause
  EXPECT_EQ(PageSamples(metrics.Page(TestNode())).count("megatrain_last_step_timestamp_seconds"),
            1u);

  metrics.Tell(TestRun("id9"), StepsBegin{1, 10});
  page = metrics.Page(TestNode());
  EXPECT_THAT(page, HasSubstr("job=\"id9\""));
  for (const char* gone : {"megatrain_step", "megatrain_loss", "megatrain_eval_loss",
                           "megatrain_last_step_timestamp_seconds",
                           "megatrain_checkpoint_last_success_timestamp_seconds",
                           "megatrain_checkpoint_duration_seconds"}) {
    EXPECT_EQ(PageSamples(page).count(gone), 0u) << gone;
  }
  // Counters go on.
  EXPECT_EQ(PageSamples(page).at("megatrain_tokens_total"), "3000");
}

TEST(DaemonMetricsTest, JobsSideBySideAreToldApartByTheirFirstDevice) {
  DaemonMetrics metrics("1.2.3", "cuda:0", {"cuda:0", "cuda:1", "cuda:2", "cuda:3"},
                        DescribeTestRun);
  const RunRequest one = TestRun("one", {0}), two = TestRun("two", {1, 2});
  metrics.Tell(one, StepsBegin{1, 10});
  metrics.Tell(two, StepsBegin{1, 10});
  metrics.Tell(two, TestStep(7));
  metrics.Tell(one, TestStep(3));
  metrics.Tell(two, CheckpointSaved{7, "", 1.5});
  MeasuredNode node = TestNode();
  node.node.clear_devices();
  for (const char* const id : {"cuda:0", "cuda:1", "cuda:2", "cuda:3"}) {
    v1::Device* const device = node.node.add_devices();
    device->set_id(id);
    device->set_busy(id != std::string("cuda:3"));
  }
  Samples samples = PageSamples(metrics.Page(node));
  EXPECT_EQ(samples.at("megatrain_step{device=\"cuda:0\"}"), "3");
  EXPECT_EQ(samples.at("megatrain_step{device=\"cuda:1\"}"), "7");
  EXPECT_EQ(samples.at("megatrain_tokens_total"), "2000");
  EXPECT_EQ(samples.at("megatrain_step_duration_seconds_count{device=\"cuda:1\"}"), "1");
  EXPECT_EQ(samples.at("megatrain_step_duration_seconds_count{device=\"cuda:3\"}"), "0");
  EXPECT_EQ(samples.at("megatrain_job_info{job=\"two\",model=\"llama\",device=\"cuda:1\","
                       "devices=\"cuda:1,cuda:2\"}"),
            "1");
  EXPECT_EQ(samples.at("megatrain_device_bytes{kind=\"arena\",device=\"cuda:1\"}"), "100");
  EXPECT_EQ(samples.at("megatrain_device_bytes{kind=\"arena\",device=\"cuda:2\"}"), "100");
  EXPECT_EQ(samples.at("megatrain_slowest_rank{lane=\"compute\",device=\"cuda:1\"}"), "1");
  EXPECT_EQ(samples.count("megatrain_checkpoint_duration_seconds{device=\"cuda:0\"}"), 0u);
  EXPECT_EQ(samples.at("megatrain_checkpoint_duration_seconds{device=\"cuda:1\"}"), "1.5");
  EXPECT_EQ(samples.at("megatrain_device_busy{device=\"cuda:2\"}"), "1");
  EXPECT_EQ(samples.at("megatrain_device_busy{device=\"cuda:3\"}"), "0");

  // A job that goes on elsewhere is told of there alone.
  const RunRequest moved = TestRun("two", {3});
  metrics.Tell(two, RunEnd());
  metrics.Tell(moved, StepsBegin{8, 10});
  metrics.Tell(moved, TestStep(8));
  samples = PageSamples(metrics.Page(node));
  EXPECT_EQ(samples.at("megatrain_step{device=\"cuda:3\"}"), "8");
  EXPECT_EQ(samples.count("megatrain_step{device=\"cuda:1\"}"), 0u);
  metrics.Tell(moved, TrainingPause());
  EXPECT_THAT(metrics.Page(node), Not(HasSubstr("job=\"two\"")));

  metrics.Tell(one, RunEnd());
  metrics.Tell(TestRun("three", {0}), StepsBegin{1, 10});
  metrics.Tell(one, CheckpointSaved{3, "", 1.5});
  samples = PageSamples(metrics.Page(node));
  EXPECT_EQ(samples.count("megatrain_step{device=\"cuda:0\"}"), 0u);
  EXPECT_EQ(samples.count("megatrain_checkpoint_duration_seconds{device=\"cuda:0\"}"), 0u);
}

TEST(DaemonMetricsTest, AThousandJobsLeaveAPageOfTheSameSize) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  const size_t before = PageSamples(metrics.Page(TestNode())).size();
  for (int i = 0; i < 1000; ++i) {
    const RunRequest run = TestRun(absl::StrCat("job", i));
    metrics.Tell(run, StepsBegin{1, 10});
    StepRecord step = TestStep(1);
    step.eval_loss = 1;
    step.eval_losses = {{"code", 1}};
    metrics.Tell(run, step);
    metrics.Tell(run, CheckpointSaved{1, "", 1});
    if (i < 999) metrics.Tell(run, RunEnd());
  }
  EXPECT_EQ(PageSamples(metrics.Page(TestNode())).size(), before);
}

TEST(DaemonMetricsTest, OfARankAloneNoSlowestIsTold) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  metrics.Tell(TestRun("id1"), StepsBegin{1, 10});
  StepRecord step = TestStep(1);
  step.spread = std::nullopt;
  metrics.Tell(TestRun("id1"), step);
  for (const auto& [sample, value] : PageSamples(metrics.Page(TestNode()))) {
    EXPECT_THAT(sample, Not(HasSubstr("rank"))) << value;
  }
}

TEST(DaemonMetricsTest, WhatIsNotKnownIsNotOnThePage) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, [](const RunRequest&) { return MeasuredJob(); });
  metrics.Tell(TestRun("id1"), StepsBegin{1, 10});
  StepRecord step;
  step.step = 1;
  metrics.Tell(TestRun("id1"), step);
  MeasuredNode node;
  node.node.add_devices()->set_id("cpu");
  const Samples samples = PageSamples(metrics.Page(node));
  EXPECT_EQ(samples.at("megatrain_step"), "1");
  EXPECT_EQ(samples.at("megatrain_device_busy{device=\"cpu\"}"), "0");
  for (const char* unknown :
       {"megatrain_mfu_ratio", "megatrain_device_bytes", "megatrain_reward", "megatrain_router",
        "megatrain_eval", "megatrain_checkpoint", "megatrain_device_memory_bytes",
        "megatrain_device_changed", "megatrain_tls"}) {
    for (const auto& [sample, value] : samples) EXPECT_THAT(sample, Not(HasSubstr(unknown)));
  }
}

TEST(DaemonMetricsTest, NumbersThatAreNotFinite) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  StepRecord step = TestStep(1);
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  metrics.Tell(TestRun("id1"), StepsBegin{1, 10});
  metrics.Tell(TestRun("id1"), step);
  RunEnd end;
  end.status = absl::AbortedError("loss is NaN");
  metrics.Tell(TestRun("id1"), end);
  const Samples samples = PageSamples(metrics.Page(TestNode()));
  EXPECT_EQ(samples.at("megatrain_loss"), "Nan");
  EXPECT_EQ(samples.at("megatrain_gradient_norm"), "+Inf");
  EXPECT_EQ(samples.at("megatrain_nonfinite_steps_total"), "1");
}

TEST(DaemonMetricsTest, CodesThatGrpcDoesNotHaveAreUnknown) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  metrics.RequestDone("/megatrain.v1.JobService/GetJob", 17);
  metrics.RequestDone("/megatrain.v1.JobService/GetJob", -1);
  metrics.RequestDone("/megatrain.v1.JobService/GetJob", 16);
  const Samples samples = PageSamples(metrics.Page(TestNode()));
  EXPECT_EQ(samples.at("megatrain_grpc_requests_total{method=\"GetJob\",code=\"UNKNOWN\"}"), "2");
  EXPECT_EQ(samples.at("megatrain_grpc_requests_total{method=\"GetJob\",code=\"UNAUTHENTICATED\"}"),
            "1");
}

TEST(DaemonMetricsTest, ReadWhileItIsWritten) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) EXPECT_THAT(metrics.Page(TestNode()), HasSubstr("megatrain_step"));
  });
  std::thread caller([&] {
    for (int i = 0; i < 500; ++i) metrics.RequestDone("/megatrain.v1.JobService/GetJob", 0);
  });
  for (int i = 1; i <= 500; ++i) {
    const RunRequest run = TestRun(absl::StrCat("job", i));
    metrics.Tell(run, StepsBegin{1, 500});
    metrics.Tell(run, TestStep(i));
    metrics.Tell(run, RunEnd());
  }
  caller.join();
  done = true;
  reader.join();
  EXPECT_EQ(PageSamples(metrics.Page(TestNode())).at("megatrain_tokens_total"), "500000");
}

TEST(DaemonMetricsTest, ARunIsOnThePage) {
  int described = 0;
  DaemonMetrics metrics("1.2.3", "cpu", {}, [&](const RunRequest& run) {
    ++described;
    MeasuredJob job = DescribeTestRun(TestRun(run.job_id));
    job.model_family = run.spec.name;
    return job;
  });
  RunRequest run;
  run.job_id = "a1";
  run.spec.name = "qwen2";
  const auto samples = [&] { return PageSamples(metrics.Page(TestNode())); };
  const std::string info = "megatrain_job_info{job=\"a1\",model=\"qwen2\"}";

  metrics.Tell(run, StepsBegin{1, 10});
  EXPECT_EQ(samples().count(info), 1u);
  metrics.Tell(run, TestStep(1));
  const absl::Time before = absl::Now();
  metrics.Tell(run, CheckpointSaved{1, "", 2.5});
  const double saved =
      std::stod(samples().at("megatrain_checkpoint_last_success_timestamp_seconds"));
  EXPECT_NEAR(saved, absl::ToDoubleSeconds(before - absl::UnixEpoch()), 60);
  EXPECT_EQ(samples().at("megatrain_step"), "1");
  EXPECT_EQ(samples().at("megatrain_checkpoint_duration_seconds"), "2.5");
  metrics.Tell(run, TrainingPause());
  EXPECT_EQ(samples().count(info), 0u);
  metrics.Tell(run, StepsBegin{2, 10});
  EXPECT_EQ(samples().count(info), 1u);
  EXPECT_EQ(described, 2);

  RunEnd end;
  end.status = absl::AbortedError("loss is NaN");
  metrics.Tell(run, end);
  EXPECT_EQ(samples().count(info), 0u);
  EXPECT_EQ(samples().at("megatrain_nonfinite_steps_total"), "1");
  end.status = absl::InternalError("it failed");
  metrics.Tell(run, end);
  EXPECT_EQ(samples().at("megatrain_nonfinite_steps_total"), "1");
}

}  // namespace
}  // namespace megatrain
