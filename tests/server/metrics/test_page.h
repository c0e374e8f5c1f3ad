// Metrics as they are when a job trains, and what is on a page.
#ifndef MEGATRAIN_TESTS_SERVER_METRICS_TEST_PAGE_H_
#define MEGATRAIN_TESTS_SERVER_METRICS_TEST_PAGE_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/metrics/daemon_metrics.h"

namespace megatrain {

inline StepRecord TestStep(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 2.5;
  record.gradient_norm = 0.75;
  record.learning_rate = 3e-4;
  record.tokens = 900;
  record.input_tokens = 1000;
  record.total_tokens = 1000 * step;
  record.step_seconds = 0.2;
  record.tokens_per_second = 5000;
  record.model_flops_per_second = 3e11;
  record.h2d_bytes = 4000;
  record.d2h_bytes = 2000;
  record.lane_busy_seconds = {.h2d = 0.05,
                              .compute = 0.15,
                              .d2h = 0.025,
                              .update = 0.1,
                              .io = 0.5,
                              .device_update = 0.3,
                              .collective = 0.125};
  record.spread = {{.ranks = 2, .slowest = {.compute = 1}, .mean = {.h2d = 0.05, .compute = 0.1}}};
  record.rewards = {{.chosen = 0.5, .rejected = -0.25, .margins = 0.75, .accuracies = 0.75}};
  record.router = {
      {.load = {0.5, 0.25, 0.25}, .busiest = 1.5, .entropy = 0.875, .auxiliary_loss = {}}};
  return record;
}

// The run of a job on these devices of several; on the only one if there are none.
inline RunRequest TestRun(const std::string& id, const std::vector<int>& devices = {}) {
  RunRequest run;
  run.job_id = id;
  run.devices = devices;
  return run;
}

inline MeasuredJob DescribeTestRun(const RunRequest& run) {
  MeasuredJob job;
  for (const int device : run.devices) job.devices.push_back("cuda:" + std::to_string(device));
  job.model_family = "llama";
  job.device_bytes = 100;
  job.peak_flops_per_second = 1.2e12;
  return job;
}

inline JobPtr TestQueuedJob(int64_t number, JobState state, absl::Time queued) {
  auto job = std::make_shared<Job>();
  job->id = "id" + std::to_string(number);
  job->number = number;
  job->display_name = "secret-plan";
  job->user = "anna";
  job->state = state;
  job->queued = queued;
  return job;
}

inline MeasuredNode TestNode() {
  MeasuredNode node;
  node.now = absl::FromUnixSeconds(1700000000);
  node.jobs = {
      TestQueuedJob(1, JobState::kSucceeded, node.now - absl::Hours(3)),
      TestQueuedJob(2, JobState::kRunning, node.now - absl::Hours(2)),
      TestQueuedJob(3, JobState::kQueued, node.now - absl::Seconds(90)),
      TestQueuedJob(4, JobState::kQueued, node.now - absl::Seconds(10)),
  };
  node.endings[{JobState::kFailed, JobReason::kNonFinite}] = 2;
  node.store_errors = 3;
  v1::Device* const device = node.node.add_devices();
  device->set_id("cpu");
  device->set_busy(true);
  device->set_memory_bytes(7000);
  node.pool.bytes = {1000, 200, 30, 4, 0};
  node.pool.free_bytes = 5000;
  node.node.mutable_state_disk()->set_size_bytes(1 << 30);
  node.node.mutable_state_disk()->set_free_bytes(1 << 29);
  node.certificate_expires = node.now + absl::Hours(24 * 60);
  return node;
}

// Everything has a value: a job trains, was evaluated and saved; calls were answered. REQUIRES: the
// metrics describe runs by DescribeTestRun.
inline void FillMetrics(DaemonMetrics* metrics) {
  const RunRequest run = TestRun("id2");
  metrics->Tell(run, StepsBegin{1, 10});
  StepRecord first = TestStep(1);
  first.eval_loss = 2.75;
  first.eval_losses = {{"code", 2.25}};
  metrics->Tell(run, first);
  metrics->Tell(run, TestStep(2));
  metrics->Tell(run, CheckpointSaved{2, "", 12.5});
  metrics->NoteDeviceChanged(absl::FromUnixSeconds(1699998000));
  metrics->RequestDone("/megatrain.v1.JobService/GetJob", 0);
  metrics->RequestDone("/megatrain.v1.JobService/GetJob", 0);
  metrics->RequestDone("/megatrain.v1.JobService/GetJob", 5);
  metrics->RequestDone("/megatrain.v1.NodeService/GetNode", 0);
  metrics->RequestDone("/grpc.health.v1.Health/Check", 0);
  metrics->CallerRefused("TOKEN_EXPIRED");
  metrics->ConnectionRefused("NO_FILES_LEFT");
}

// Families and their types.
inline std::map<std::string, std::string> PageTypes(const std::string& page) {
  std::map<std::string, std::string> types;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() == 4 && words[0] == "#" && words[1] == "TYPE") types[words[2]] = words[3];
  }
  return types;
}

// Samples: "megatrain_jobs{state=\"QUEUED\"}" and the text of its value.
inline std::map<std::string, std::string> PageSamples(const std::string& page) {
  std::map<std::string, std::string> samples;
  for (const absl::string_view line : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    samples[std::string(line.substr(0, space))] = std::string(line.substr(space + 1));
  }
  return samples;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_METRICS_TEST_PAGE_H_
