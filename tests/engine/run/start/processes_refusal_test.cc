// Processes that do not go together are refused before the first step, all with the same error.
// They are threads here, with a host each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/safetensors.h"
#include "engine/run/start/model_files.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec Job(const std::string& directory, bool clipped = true) {
  JobSpec spec =
      CurveJob(LoadModelReference("llama"), Precision::kFp32, clipped, FreshDirectory(directory));
  spec.training.micro_batch = 1;
  spec.training.steps = 5;
  spec.engine.threads = 1;
  return spec;
}

std::vector<JobRun> TrainIn(int processes, const JobSpec& spec, int64_t stop_after = 0) {
  return TrainInProcesses(std::vector<JobSpec>(static_cast<size_t>(processes), spec), stop_after);
}

// Three processes, one of which has another job.
std::vector<JobRun> TrainDifferently(int rank, const std::function<void(JobSpec&)>& change) {
  std::vector<JobSpec> specs(3, Job("different"));
  change(specs[static_cast<size_t>(rank)]);
  return TrainInProcesses(specs);
}

void ExpectAllEndWith(const std::vector<JobRun>& runs, absl::StatusCode code,
                      const std::string& part, const std::string& other) {
  for (const JobRun& run : runs) {
    EXPECT_EQ(run.status.code(), code) << run.status;
    EXPECT_THAT(std::string(run.status.message()), AllOf(HasSubstr(part), HasSubstr(other)));
    EXPECT_THAT(run.records, IsEmpty());
  }
}

void ExpectRefused(const std::vector<JobRun>& runs, const std::string& part,
                   const std::string& other) {
  ExpectAllEndWith(runs, absl::StatusCode::kFailedPrecondition, part, other);
}

// A copy of the directory of the job's model.
std::string CopyOfModel(const JobSpec& spec, const std::string& name) {
  const std::string copy = FreshDirectory(name);
  fs::copy(spec.model.path, copy, fs::copy_options::recursive);
  return copy;
}

// Changes byte `at` of a file.
void ChangeByte(const std::string& path, int64_t at) {
  std::string bytes = ReadBytes(path);
  bytes[static_cast<size_t>(at)] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
}

// Keys that a resumed run may change too.
TEST(ProcessesRefusalTest, OtherJobFiles) {
  const std::vector<std::pair<std::function<void(JobSpec&)>, std::string>> changes = {
      {[](JobSpec& s) { s.optimizer.learning_rate = 0.5; }, "optimizer.learning_rate \"0.5\""},
      {[](JobSpec& s) { s.training.steps = 6; }, "training.steps \"6\""},
      {[](JobSpec& s) { s.training.eval_every = 7; }, "training.eval_every \"7\""},
      {[](JobSpec& s) { s.training.skip_steps = {2}; }, "training.skip_steps \"[2]\""},
      {[](JobSpec& s) { s.training.keep_best = true; }, "training.keep_best \"true\""},
      {[](JobSpec& s) { s.output.directory = "/out"; }, "output.directory \"a path\""},
      {[](JobSpec& s) { s.checkpoint.every_steps = 2; }, "checkpoint.every_steps \"2\""},
      {[](JobSpec& s) { s.engine.weight_buffers = 3; }, "engine.weight_buffers \"3\""}};
  for (const auto& [change, told] : changes) {
    ExpectRefused(TrainDifferently(2, change), absl::StrCat("job file: rank 2 has ", told),
                  "give all processes of a job the same one");
  }
}

TEST(ProcessesRefusalTest, NotForWhatEachMayHaveOfItsOwn) {
  std::vector<JobSpec> specs(2, Job("own"));
  specs[1].engine.threads = 2;
  specs[0].output.directory = FreshDirectory("own_output0") + "/out";
  specs[1].output.directory = FreshDirectory("own_output1") + "/out";
  for (const JobRun& run : TrainInProcesses(specs)) EXPECT_TRUE(run.status.ok()) << run.status;
}

TEST(ProcessesRefusalTest, AModelOfOtherShapes) {
  ExpectRefused(
      TrainDifferently(
          1, [](JobSpec& spec) { spec.model.path = LoadModelReference("qwen2").directory; }),
      "model.path: rank 1 has the tensors", "name the same model on all machines");
}

TEST(ProcessesRefusalTest, AModelThatIsNotThere) {
  ExpectAllEndWith(TrainDifferently(2, [](JobSpec& spec) { spec.model.path = "/nowhere/model"; }),
                   absl::StatusCode::kNotFound, "rank 2 on ", "/nowhere/model");
}

// The same shapes and names, as a model and one that was fine-tuned from it have.
TEST(ProcessesRefusalTest, OtherWeightsOfTheSameShapes) {
  constexpr char kTensor[] = "model.layers.1.mlp.down_proj.weight";
  const JobSpec spec = Job("weights");
  const auto reader =
      SafetensorsReader::Open(PosixFileSystem(), spec.model.path + "/model.safetensors");
  const SafetensorsTensor& tensor = *(*reader)->Find(kTensor);
  ASSERT_GT(tensor.bytes(), 3 * kSampleBytes);
  const int64_t begin = (*reader)->header().data_offset + tensor.begin;
  for (const int64_t at : {int64_t{0}, tensor.bytes() / 2, tensor.bytes() - 1}) {
    std::vector<JobSpec> specs(3, spec);
    specs[1].model.path = CopyOfModel(spec, "copy");
    ChangeByte(specs[1].model.path + "/model.safetensors", begin + at);
    ExpectRefused(TrainInProcesses(specs),
                  absl::StrCat("model.path: rank 1 has tensor ", kTensor,
                               " in model.safetensors \"F32 [60, 100] at byte "),
                  "name the same model on all machines");
  }
  // A copy elsewhere is the same model.
  std::vector<JobSpec> specs(2, spec);
  specs[1].model.path = CopyOfModel(spec, "copy");
  for (const JobRun& run : TrainInProcesses(specs)) EXPECT_TRUE(run.status.ok()) << run.status;
}

TEST(ProcessesRefusalTest, OtherFilesBesideTheWeights) {
  for (const std::string name :
       {"config.json", "tokenizer_config.json", "additional_chat_templates/tools.jinja"}) {
    std::vector<JobSpec> specs(2, Job("side"));
    specs[1].model.path = CopyOfModel(specs[0], "side_copy");
    fs::create_directory(specs[1].model.path + "/additional_chat_templates");
    std::ofstream(specs[1].model.path + "/" + name, std::ios::app) << "\n";
    ExpectRefused(TrainInProcesses(specs),
                  absl::StrCat("model.path: rank 1 has a file ", name, " of the hash \""),
                  "copy the directory of one of them to the others");
  }
}

// A run that goes on does not read the model's weights: they may be gone, or others.
TEST(ProcessesRefusalTest, NotForWeightsThatNobodyReads) {
  std::vector<JobSpec> specs(2, Job("resumed"));
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].model.path = CopyOfModel(specs[0], absl::StrCat("resumed_copy", i));
  }
  ASSERT_TRUE(TrainInProcesses(specs, /*stop_after=*/2)[0].status.ok());
  fs::remove(specs[1].model.path + "/model.safetensors");
  for (const JobRun& run : TrainInProcesses(specs)) EXPECT_TRUE(run.status.ok()) << run.status;
}

// Checkpoints of the same step and job, one of them of another history.
TEST(ProcessesRefusalTest, AnotherCheckpoint) {
  const JobSpec spec = Job("checkpoint");
  ASSERT_TRUE(Train(spec, /*stop_after=*/2).status.ok());
  const std::string named = NewestCheckpoint(spec);
  const std::string other = FreshDirectory("other") + "/" + fs::path(named).filename().string();
  fs::copy(named, other, fs::copy_options::recursive);
  auto manifest = ReadManifest(other);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->state.run = NewRunName();
  std::ofstream(other + "/" + kManifestFile, std::ios::binary) << SerializeManifest(*manifest);
  std::vector<TrainingOptions> options(2);
  for (TrainingOptions& one : options) one.resume = ResumeMode::kPath;
  options[0].resume_path = named;
  options[1].resume_path = other;
  ExpectRefused(TrainInProcesses({spec, spec}, 0, options),
                "the checkpoint to resume from: rank 1 has a manifest of the hash",
                "all processes must read one and the same");
}

TEST(ProcessesRefusalTest, OtherData) {
  const std::string tokens = ReadBytes(Job("data").data.train[0].path);
  std::string same_size = tokens;
  same_size[same_size.size() / 2] ^= 1;
  for (const std::string& content : {tokens.substr(2) + tokens, same_size}) {
    const std::string path = FreshDirectory("other_data") + "/tokens.bin";
    std::ofstream(path, std::ios::binary) << content;
    ExpectRefused(TrainDifferently(1, [&](JobSpec& spec) { spec.data.train[0].path = path; }),
                  "data: rank 1 has the fingerprint", "give all processes of a job the same files");
  }
}

// The check comes before anything is loaded, and leaves nothing behind.
TEST(ProcessesRefusalTest, ADirectoryOfCheckpointsThatIsNotShared) {
  std::vector<JobSpec> specs(3, Job("shared"));
  const std::string other = FreshDirectory("not_shared");
  specs[1].checkpoint.directory = other;
  // What would be refused if anything were loaded.
  for (JobSpec& spec : specs) {
    spec.model.path = CopyOfModel(spec, "weightless");
    spec.data.train[0].path = "/nowhere/tokens.bin";
  }
  ExpectRefused(TrainInProcesses(specs),
                absl::StrCat("checkpoint.directory: ", specs[0].checkpoint.directory,
                             " is not shared: what rank 0 on "),
                " made there is not seen by rank 1 on ");
  EXPECT_TRUE(fs::is_empty(other));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(specs[0].checkpoint.directory)) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::ElementsAre(".lock"));
}

TEST(ProcessesRefusalTest, WhatProcessesCannotShare) {
  JobSpec spec = Job("refused");
  for (const JobRun& run : TrainIn(6, spec)) {
    EXPECT_THAT(std::string(run.status.message()),
                HasSubstr("job of 6 processes: 6 devices cannot share a step of 4 micro-batches"));
  }
  spec.engine.devices = 2;
  EXPECT_THAT(std::string(TrainIn(2, spec)[0].status.message()),
              HasSubstr("engine.devices: 2: each process of a job over several processes has one"));
}

TEST(ProcessesRefusalTest, AStepThatIsNotFinite) {
  for (const bool clipped : {false, true}) {
    JobSpec spec = Job("not_finite", clipped);
    spec.optimizer.learning_rate = 1e38;
    for (const JobRun& run : TrainIn(3, spec)) {
      EXPECT_EQ(run.status.code(), absl::StatusCode::kAborted) << run.status;
      EXPECT_THAT(std::string(run.status.message()), HasSubstr("step "));
    }
  }
}

}  // namespace
}  // namespace megatrain
