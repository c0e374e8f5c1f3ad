// Jobs whose machines have directories of their own for checkpoints (checkpoint.shared: false).
// Here a machine is a name, and its processes are threads with a host each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/inspect/gather_checkpoint.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/support/refusing_file_system.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class MachineDirectoriesTest : public ::testing::Test {
 protected:
  using Machines = std::vector<std::string>;  // of each process

  static JobSpec Job(const std::string& directory) {
    JobSpec spec = CurveJob(LoadModelReference("llama_tied"), Precision::kBf16, /*clipped=*/true,
                            FreshDirectory(directory));
    spec.training.micro_batch = 1;
    spec.training.steps = 6;
    spec.engine.threads = 1;
    spec.checkpoint.every_steps = 2;
    spec.checkpoint.keep = 10;
    spec.checkpoint.shared = false;
    return spec;
  }
  JobSpec JobOf(const std::string& machine) const {
    JobSpec spec = job_;
    spec.checkpoint.directory = absl::StrCat(job_.checkpoint.directory, "/", machine);
    return spec;
  }
  std::string PartOf(const std::string& machine, int64_t step) const {
    return absl::StrCat(JobOf(machine).checkpoint.directory, "/step-0000000", step);
  }
  std::vector<JobRun> TrainOn(const Machines& machines, int64_t stop_after = 0,
                              const std::vector<TrainingOptions>& options = {}) const {
    std::vector<JobSpec> specs;
    for (const std::string& machine : machines) specs.push_back(JobOf(machine));
    return TrainInProcesses(specs, stop_after, options, machines);
  }
  // The steps of a machine's parts, the newest first. A run that is told to stop has a step under
  // way, after which it saves.
  std::vector<int64_t> StepsOf(const std::string& machine) const {
    return ListSteps(JobOf(machine).checkpoint.directory).value_or(std::vector<int64_t>());
  }
  // Gathers the last checkpoint of a and b, which must be that of as many devices of one machine.
  void ExpectAsOnDevices(int devices) const {
    JobSpec one = Job("devices");
    one.engine.devices = devices;
    ASSERT_TRUE(Train(one).status.ok());
    JobSpec gathered = job_;
    gathered.checkpoint.directory = FreshDirectory("gathered");
    const auto path =
        GatherCheckpoint({PartOf("b", 6), PartOf("a", 6)}, gathered.checkpoint.directory);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_TRUE(CheckpointTensorFiles(gathered) == CheckpointTensorFiles(one));
  }

  const JobSpec job_ = Job("job");
};

TEST_F(MachineDirectoriesTest, GatheredPartsAreTheCheckpointOfAsManyDevices) {
  for (const JobRun& run : TrainOn({"a", "a", "b"})) ASSERT_TRUE(run.status.ok()) << run.status;
  ExpectAsOnDevices(3);
}

TEST_F(MachineDirectoriesTest, ARunGoesOnFromTheParts) {
  for (const int64_t stop_after : {3, 0}) {
    for (const JobRun& run : TrainOn({"a", "a", "b"}, stop_after)) {
      ASSERT_TRUE(run.status.ok()) << run.status;
    }
  }
  ExpectAsOnDevices(3);
}

TEST_F(MachineDirectoriesTest, ACheckpointThatOneMachineLacksIsPassedOver) {
  ASSERT_TRUE(TrainOn({"a", "b"}, /*stop_after=*/3)[0].status.ok());
  const std::vector<int64_t> steps = StepsOf("b");
  ASSERT_GT(steps.size(), 1u);
  std::filesystem::remove_all(PartOf("b", steps[0]));
  const std::vector<JobRun> runs = TrainOn({"a", "b"});
  for (const JobRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(runs[0].messages,
              Contains(AllOf(HasSubstr(PartOf("a", steps[0])), HasSubstr("no counterpart"))));
  EXPECT_EQ(runs[0].records.front().step, steps[1] + 1);
  ExpectAsOnDevices(2);
}

TEST_F(MachineDirectoriesTest, APartThatWasOnlyNotNamedGetsItsName) {
  ASSERT_TRUE(TrainOn({"a", "b"}, /*stop_after=*/1)[0].status.ok());
  // The machine b died between the names.
  const int64_t step = StepsOf("b").at(0);
  std::filesystem::rename(PartOf("b", step), PartOf("b", step) + ".tmp");
  const std::vector<JobRun> runs = TrainOn({"a", "b"});
  for (const JobRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(runs[0].messages, Contains(AllOf(HasSubstr("rank 1"), HasSubstr(PartOf("b", step)),
                                               HasSubstr("its name"))));
  EXPECT_EQ(runs[0].records.front().step, step + 1);
  ExpectAsOnDevices(2);
}

// What cannot be read now may be whole, and all that is missing is its name.
TEST_F(MachineDirectoriesTest, APartThatCannotBeReadEndsTheRunAndIsNotRemoved) {
  ASSERT_TRUE(TrainOn({"a", "b"}, /*stop_after=*/1)[0].status.ok());
  const int64_t step = StepsOf("b").at(0);
  const std::string unfinished = PartOf("b", step) + ".tmp";
  std::filesystem::rename(PartOf("b", step), unfinished);
  UnreadableFileSystem manifest(".tmp/manifest.json", EIO), configuration(".tmp/config.json", EIO);
  for (UnreadableFileSystem* const files : {&manifest, &configuration}) {
    std::vector<TrainingOptions> options(2);
    options[1].files = files;
    for (const JobRun& run : TrainOn({"a", "b"}, 0, options)) {
      EXPECT_EQ(run.status.code(), absl::StatusCode::kInternal) << run.status;
      EXPECT_THAT(std::string(run.status.message()), HasSubstr(unfinished));
    }
    EXPECT_TRUE(std::filesystem::exists(unfinished));
  }
  // On the machine that has the name.
  const std::string there = PartOf("a", step) + "/manifest.json";
  UnreadableFileSystem named(there, EIO);
  std::vector<TrainingOptions> options(2);
  options[0].files = &named;
  for (const JobRun& run : TrainOn({"a", "b"}, 0, options)) {
    EXPECT_EQ(run.status.code(), absl::StatusCode::kInternal) << run.status;
    EXPECT_THAT(std::string(run.status.message()), HasSubstr(there));
  }
  EXPECT_TRUE(std::filesystem::exists(unfinished));
  const std::vector<JobRun> runs = TrainOn({"a", "b"});
  for (const JobRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(runs[0].records.front().step, step + 1);
}

TEST_F(MachineDirectoriesTest, APartWithADamagedManifestIsReplaced) {
  ASSERT_TRUE(TrainOn({"a", "b"}, /*stop_after=*/3)[0].status.ok());
  const std::vector<int64_t> steps = StepsOf("b");
  ASSERT_GT(steps.size(), 1u);
  // One that is saved again, and what is newer.
  for (const int64_t step : steps) {
    if (step >= 4) std::filesystem::resize_file(PartOf("b", step) + "/manifest.json", 100);
  }
  const std::vector<JobRun> runs = TrainOn({"a", "b"});
  for (const JobRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_LT(runs[0].records.front().step, 5);
  ExpectAsOnDevices(2);
}

TEST_F(MachineDirectoriesTest, OlderPartsGoOnAllMachines) {
  std::vector<JobSpec> specs = {JobOf("a"), JobOf("b")};
  for (JobSpec& spec : specs) spec.checkpoint.keep = 1;
  for (const JobRun& run : TrainInProcesses(specs, 0, {}, {"a", "b"})) {
    ASSERT_TRUE(run.status.ok()) << run.status;
  }
  for (const char* const machine : {"a", "b"}) {
    for (const int64_t step : {2, 4}) EXPECT_FALSE(std::filesystem::exists(PartOf(machine, step)));
  }
  ExpectAsOnDevices(2);
}

TEST_F(MachineDirectoriesTest, ADamagedPartSendsAllBack) {
  ASSERT_TRUE(TrainOn({"a", "b"}, /*stop_after=*/3)[0].status.ok());
  const std::vector<int64_t> steps = StepsOf("b");
  ASSERT_GT(steps.size(), 1u);
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(PartOf("b", steps[0]))) {
    if (entry.path().extension() == ".part") file = entry.path();
  }
  std::string bytes = ReadBytes(file);
  ASSERT_FALSE(bytes.empty()) << file;
  bytes[bytes.size() - 1] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  const std::vector<JobRun> runs = TrainOn({"a", "b"});
  for (const JobRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(runs[0].records.front().step, steps[1] + 1);
  ExpectAsOnDevices(2);
}

TEST_F(MachineDirectoriesTest, WhatDoesNotGoTogetherIsRefused) {
  ASSERT_TRUE(TrainOn({"a", "a", "b"}, /*stop_after=*/2)[0].status.ok());
  const auto expect = [](const std::vector<JobRun>& runs, const std::vector<std::string>& words) {
    for (const JobRun& run : runs) {
      EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition) << run.status;
      for (const std::string& word : words) {
        EXPECT_THAT(std::string(run.status.message()), HasSubstr(word));
      }
    }
  };
  // Other numbers of processes on the machines.
  expect(TrainOn({"a", "b", "b"}), {"megatraind gather"});
  // The machines in another order.
  expect(TrainOn({"b", "b", "a"}), {"in the order of the save"});
  // A machine without its part.
  expect(TrainOn({"a", "a", "c"}),
         {"rank 2", "has no checkpoint in", "bring the missing part back"});
  // Whole checkpoints are not among the parts.
  expect(TrainOn({"a", "c", "a"}), {"checkpoint.shared", "rank 2"});
  // One process alone.
  const JobRun alone = Train(JobOf("a"));
  expect({alone}, {"part 1 of 2", "megatraind gather"});
  std::vector<JobSpec> specs(2, JobOf("a"));
  expect(TrainInProcesses(specs, 0, {}, {"a", "b"}), {"checkpoint.shared: false", "share"});
}

TEST_F(MachineDirectoriesTest, AnOutputIsRefusedBeforeTheRun) {
  std::vector<JobSpec> specs = {JobOf("a"), JobOf("b")};
  for (JobSpec& spec : specs) spec.output.directory = job_.checkpoint.directory + "/out";
  for (const JobRun& run : TrainInProcesses(specs, 0, {}, {"a", "b"})) {
    EXPECT_EQ(run.status.code(), absl::StatusCode::kInvalidArgument) << run.status;
    EXPECT_THAT(std::string(run.status.message()), HasSubstr("output.directory"));
  }
  // A machine alone has the whole model.
  specs[1] = specs[0];
  const std::vector<JobRun> runs = TrainInProcesses(specs, 0, {}, {"a", "a"});
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_TRUE(std::filesystem::exists(specs[0].output.directory + "/model.safetensors"));
}

// What was gathered goes on with any number of processes.
TEST_F(MachineDirectoriesTest, AGatheredCheckpointGoesOnElsewhere) {
  ASSERT_TRUE(TrainOn({"a", "b"}, /*stop_after=*/3)[0].status.ok());
  const int64_t step = StepsOf("a").at(0);
  JobSpec spec = job_;
  spec.checkpoint.directory = FreshDirectory("gathered");
  const auto gather = [&] {
    return GatherCheckpoint({PartOf("a", step), PartOf("b", step)}, spec.checkpoint.directory)
        .status();
  };
  // A user's directory that is in the way stays.
  const std::string foreign = absl::StrCat(spec.checkpoint.directory, "/", StepDirectoryName(step),
                                           kUnfinishedSuffix, "/folder");
  std::filesystem::create_directories(foreign);
  EXPECT_EQ(gather().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::remove(foreign));
  ASSERT_TRUE(gather().ok());
  const JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.records.front().step, step + 1);
}

TEST_F(MachineDirectoriesTest, PartsOfOneStepButOfTwoSavesArePassedOver) {
  ASSERT_TRUE(TrainOn({"a", "b"})[0].status.ok());
  const std::string aside = job_.checkpoint.directory + "/aside";
  std::filesystem::rename(PartOf("b", 6), aside);
  std::filesystem::remove_all(PartOf("a", 6));
  ASSERT_TRUE(TrainOn({"a", "b"})[0].status.ok());  // saves step 6 again
  std::filesystem::remove_all(PartOf("b", 6));
  std::filesystem::rename(aside, PartOf("b", 6));
  const std::vector<JobRun> runs = TrainOn({"a", "b"});
  for (const JobRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(runs[0].messages,
              Contains(AllOf(HasSubstr(PartOf("a", 6)), HasSubstr("no counterpart"))));
  EXPECT_EQ(runs[0].records.front().step, 5);
  ExpectAsOnDevices(2);
}

}  // namespace
}  // namespace megatrain
