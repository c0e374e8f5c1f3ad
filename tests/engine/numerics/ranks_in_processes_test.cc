// Jobs that several processes share, each with a part of the state. Here they are threads of one
// process with a host each; those of MPI are in tests/e2e. What they compute is held against
// several devices of one process, which ranks_test holds against transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/numerics/preference_reference.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

JobSpec Job(const std::string& family, bool clipped, const std::string& directory) {
  const Precision precision = family == "llama" ? Precision::kFp32 : Precision::kBf16;
  JobSpec spec =
      CurveJob(LoadModelReference(family), precision, clipped, FreshDirectory(directory));
  spec.training.micro_batch = 1;
  spec.training.steps = 5;
  spec.engine.threads = 1;
  return spec;
}

std::vector<JobRun> TrainIn(int processes, const JobSpec& spec, int64_t stop_after = 0) {
  return TrainInProcesses(std::vector<JobSpec>(static_cast<size_t>(processes), spec), stop_after);
}

// A run that was resumed loads tiles again that were on the device before.
void ExpectSameRecords(const std::vector<StepRecord>& records,
                       const std::vector<StepRecord>& expected, bool resumed) {
  ASSERT_EQ(records.size(), expected.size());
  for (size_t k = 0; k < records.size(); ++k) {
    const StepRecord &a = records[k], &b = expected[k];
    EXPECT_EQ(a.loss, b.loss) << "step " << k + 1;
    EXPECT_EQ(a.gradient_norm, b.gradient_norm) << "step " << k + 1;
    EXPECT_EQ(a.eval_loss, b.eval_loss) << "step " << k + 1;
    if (!resumed) {
      EXPECT_EQ(a.h2d_bytes, b.h2d_bytes) << "step " << k + 1;
    }
    ASSERT_EQ(a.router.has_value(), b.router.has_value());
    if (a.router.has_value()) {
      EXPECT_EQ(a.router->load, b.router->load);
      EXPECT_EQ(a.router->busiest, b.router->busiest);
      EXPECT_EQ(a.router->entropy, b.router->entropy);
      EXPECT_EQ(a.router->auxiliary_loss, b.router->auxiliary_loss);
    }
    ASSERT_TRUE(a.spread.has_value() && b.spread.has_value());
    EXPECT_EQ(a.spread->ranks, b.spread->ranks);
    for (const StepRecord* const record : {&a, &b}) {
      EXPECT_LT(record->spread->slowest.compute, record->spread->ranks);
      EXPECT_GT(record->spread->mean.compute, 0);
      EXPECT_LE(record->spread->mean.compute, record->lane_busy_seconds.compute);
    }
  }
}

// family, clipped
class ProcessesTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  JobSpec JobIn(const std::string& directory) const {
    const auto& [family, clipped] = GetParam();
    JobSpec spec = Job(family, clipped, directory);
    spec.data.eval_fraction = 0.2;
    spec.training.eval_every = 2;
    spec.training.global_batch = 5;  // ranks have different numbers of micro-batches
    if (family == "mixtral") spec.training.router_auxiliary_loss = 0.02;
    return spec;
  }
};

TEST_P(ProcessesTest, HaveTheBitsOfAsManyDevicesAndAPartOfTheirState) {
  for (const int count : {2, 3}) {
    SCOPED_TRACE(absl::StrCat(count, " processes"));
    JobSpec devices = JobIn("devices");
    devices.engine.devices = count;
    const JobRun expected = Train(devices);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    for (const int64_t stop_after : {0, 3}) {
      JobSpec spec = JobIn("processes");
      spec.output.directory = spec.checkpoint.directory + "/../out";
      spec.checkpoint.every_steps = stop_after > 0 ? 0 : 2;
      std::vector<JobRun> runs = TrainIn(count, spec, stop_after);
      std::vector<StepRecord> records;
      for (int leg = 0; leg < (stop_after > 0 ? 2 : 1); ++leg) {
        if (leg == 1) runs = TrainIn(count, spec);
        for (const JobRun& run : runs) {
          ASSERT_TRUE(run.status.ok()) << run.status;
          EXPECT_EQ(run.outcome, leg == 0 && stop_after > 0 ? TrainingOutcome::kInterrupted
                                                            : TrainingOutcome::kFinished);
        }
        records.insert(records.end(), runs[0].records.begin(), runs[0].records.end());
      }
      ExpectSameRecords(records, expected.records, /*resumed=*/stop_after > 0);
      // The others report how they get on, and nothing else.
      EXPECT_EQ(runs[1].records.size(), runs[0].records.size());
      EXPECT_TRUE(runs[1].messages.empty());
      EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(devices));
      EXPECT_TRUE(std::filesystem::exists(spec.output.directory + "/model.safetensors"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ProcessesTest,
                         ::testing::Combine(::testing::Values("llama", "llama_tied", "mixtral",
                                                              "gemma4_shared"),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param),
                                               std::get<1>(info.param) ? "_clipped" : "_unclipped");
                         });

TEST(ProcessesJobTest, EachHoldsItsPartOfTheState) {
  const JobRun one = Train(Job("llama", true, "one"));
  const std::vector<JobRun> four = TrainIn(4, Job("llama", true, "four"));
  ASSERT_TRUE(one.status.ok() && four[0].status.ok()) << four[0].status;
  // State and gradients are divided, batches are not.
  EXPECT_LT(static_cast<double>(four[0].records[0].host_bytes),
            0.35 * static_cast<double>(one.records[0].host_bytes));
}

// With gradient_shards the number of processes and devices may change in mid-run.
TEST(ProcessesJobTest, GradientShardsHideTheNumberOfProcesses) {
  JobSpec one = Job("mixtral", true, "one");
  one.training.gradient_shards = 4;
  const JobRun expected = Train(one);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  JobSpec spec = Job("mixtral", true, "several");
  spec.training.gradient_shards = 4;
  ASSERT_TRUE(Train(spec, 1).status.ok());
  for (const auto& [processes, stop_after] : {std::pair(4, 3), std::pair(2, 0)}) {
    const std::vector<JobRun> runs = TrainIn(processes, spec, stop_after);
    ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
    EXPECT_EQ(runs[0].records.back().loss,
              expected.records[static_cast<size_t>(runs[0].records.back().step - 1)].loss);
  }
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(one));
}

TEST(ProcessesJobTest, OtherNumbersOfProcessesGoOnFromAnyCheckpoint) {
  const JobRun expected = Train(Job("llama", true, "one"));
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  const JobSpec spec = Job("llama", true, "several");
  std::vector<StepRecord> records;
  for (const auto& [processes, stop_after] :
       {std::pair(2, 1), std::pair(4, 3), std::pair(3, 4), std::pair(1, 0)}) {
    const JobRun leg =
        processes > 1 ? TrainIn(processes, spec, stop_after)[0] : Train(spec, stop_after);
    ASSERT_TRUE(leg.status.ok()) << leg.status;
    records.insert(records.end(), leg.records.begin(), leg.records.end());
  }
  ASSERT_EQ(records.size(), expected.records.size());
  for (size_t k = 0; k < records.size(); ++k) {
    EXPECT_NEAR(records[k].loss / expected.records[k].loss, 1, 1e-5) << "step " << k + 1;
  }
  EXPECT_EQ(records.back().total_tokens, expected.records.back().total_tokens);
}

TEST(ProcessesJobTest, PreferencesHaveTheBitsOfAsManyDevices) {
  const PreferenceReference reference = LoadPreferenceReference("llama");
  const auto job = [&](const std::string& directory) {
    JobSpec spec = PreferenceJob(reference, Precision::kBf16, /*clipped=*/true, directory);
    spec.training.micro_batch = 1;
    spec.training.steps = 5;
    spec.engine.threads = 1;
    return spec;
  };
  JobSpec devices = job("devices");
  devices.engine.devices = 2;
  const JobRun expected = Train(devices);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  const JobSpec spec = job("processes");
  const JobRun run = TrainIn(2, spec)[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    EXPECT_EQ(run.records[k].loss, expected.records[k].loss) << "step " << k + 1;
    EXPECT_EQ(run.records[k].rewards->chosen, expected.records[k].rewards->chosen);
  }
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(devices));
}

// A damaged part is found by the process that reads it; all go on from the checkpoint before.
TEST(ProcessesResumeTest, ADamagedCheckpointIsPassedOverByAll) {
  JobSpec spec = Job("llama", true, "damaged");
  spec.checkpoint.every_steps = 2;
  spec.checkpoint.keep = 10;
  ASSERT_TRUE(TrainIn(2, spec, /*stop_after=*/4)[0].status.ok());
  const std::filesystem::path newest = NewestCheckpoint(spec);
  std::string file = newest / CheckpointTensorFiles(spec).rbegin()->first;
  std::string bytes = ReadBytes(file);
  bytes[bytes.size() - 100] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  const std::vector<JobRun> runs = TrainIn(2, spec);
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_THAT(runs[0].messages, Contains(HasSubstr("damaged checkpoint: ")));
  EXPECT_EQ(runs[0].records.back().step, spec.training.steps);
  JobSpec devices = Job("llama", true, "undisturbed");
  devices.engine.devices = 2;
  ASSERT_TRUE(Train(devices).status.ok());
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(devices));
}

}  // namespace
}  // namespace megatrain
