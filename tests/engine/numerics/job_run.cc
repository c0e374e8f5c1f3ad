#include "tests/engine/numerics/job_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/time/time.h"
#include "engine/comm/thread_communicator.h"

namespace megatrain {

JobSpec CurveJob(const ModelReference& reference, Precision precision, bool clipped,
                 const std::string& directory) {
  const CurveSettings& settings = reference.curve_settings;
  const std::string model = std::filesystem::absolute(reference.directory);
  JobSpec spec;
  spec.name = "curve";
  spec.model.path = model;
  spec.data.train = {{model + "/tokens.bin", DataFormat::kTokens, "uint16"}};
  spec.data.sequence_length = settings.sequence_length;
  spec.data.shuffle = false;
  spec.data.cache_directory = ::testing::TempDir() + "/cache";  // a resumed job must name the same
  spec.training.steps = settings.steps;
  spec.training.global_batch = settings.global_batch;
  spec.training.micro_batch = 2;
  spec.training.precision = precision;
  spec.optimizer.learning_rate = settings.learning_rate;
  spec.optimizer.beta1 = settings.beta1;
  spec.optimizer.beta2 = settings.beta2;
  spec.optimizer.epsilon = settings.epsilon;
  spec.optimizer.weight_decay = settings.weight_decay;
  spec.optimizer.max_gradient_norm = clipped ? 1.0 : 0.0;
  spec.schedule.type = ScheduleType::kConstant;
  spec.schedule.warmup_steps = settings.warmup_steps;
  spec.checkpoint.directory = directory + "/checkpoints";
  spec.checkpoint.every_steps = 0;
  spec.engine.device = "cpu";
  spec.engine.threads = 2;
  return spec;
}

JobSpec PreferenceJob(const PreferenceReference& reference, Precision precision, bool clipped,
                      const std::string& directory) {
  const ModelReference model = LoadModelReference("llama");
  JobSpec spec = CurveJob(model, precision, clipped, FreshDirectory(directory));
  spec.model.path = reference.directory;
  spec.data.train = {{reference.pairs, DataFormat::kPreference, ""}};
  spec.data.sequence_length = 200;
  spec.data.packing = false;
  spec.data.tokenizer = "bytes";
  spec.data.cache_directory = "";
  spec.training.objective = Objective::kDpo;
  spec.training.dpo.beta = reference.curve_beta;
  spec.training.steps = reference.curve_steps;
  spec.training.global_batch = reference.curve_pairs;
  return spec;
}

LossCurve JobRun::curve() const {
  LossCurve curve;
  for (const StepRecord& record : records) {
    curve.losses.push_back(record.loss);
    curve.gradient_norms.push_back(record.gradient_norm);
  }
  return curve;
}

JobRun Train(const JobSpec& spec, int64_t stop_after) {
  EngineHostOptions options;
  options.device = spec.engine.device;
  absl::StatusOr<std::unique_ptr<EngineHost>> host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  return TrainOnHost(**host, spec, stop_after);
}

JobRun TrainOnHost(EngineHost& host, const JobSpec& spec, int64_t stop_after,
                   CommunicatorSet* processes, TrainingOptions options) {
  JobRun run;
  TrainingControl control;
  const auto note = [&](const RunEvent& event) {
    if (const auto* const message = std::get_if<RunMessage>(&event)) {
      run.messages.push_back(message->line);
    }
    if (const auto* const record = std::get_if<StepRecord>(&event)) {
      run.records.push_back(*record);
      if (record->step == stop_after) control.Stop();
    }
  };
  options.processes = processes;
  absl::StatusOr<TrainingOutcome> outcome = RunTraining(host, spec, options, &control, note);
  run.status = outcome.status();
  if (outcome.ok()) run.outcome = *outcome;
  return run;
}

std::vector<JobRun> TrainInProcesses(const std::vector<JobSpec>& specs, int64_t stop_after,
                                     const std::vector<TrainingOptions>& given,
                                     const std::vector<std::string>& machines) {
  std::vector<CommunicatorSet> communicators =
      CreateThreadCommunicators(static_cast<int>(specs.size()), absl::InfiniteDuration());
  for (CommunicatorSet& set : communicators) {
    set.machines = machines.empty() ? std::vector<std::string>(specs.size(), "one") : machines;
  }
  std::vector<JobRun> runs(specs.size());
  std::vector<std::thread> processes;
  for (size_t i = 0; i < specs.size(); ++i) {
    processes.emplace_back([&, i] {
      EngineHostOptions options;
      options.device = specs[i].engine.device;
      options.sharers = static_cast<int>(specs.size());
      absl::StatusOr<std::unique_ptr<EngineHost>> host = EngineHost::Create(options);
      ASSERT_TRUE(host.ok()) << host.status();
      runs[i] = TrainOnHost(**host, specs[i], i == 0 ? stop_after : 0, &communicators[i],
                            given.empty() ? TrainingOptions() : given[i]);
    });
  }
  for (std::thread& process : processes) process.join();
  return runs;
}

std::string NewestCheckpoint(const JobSpec& spec) {
  std::filesystem::path newest;
  if (!std::filesystem::exists(spec.checkpoint.directory)) return "";
  for (const auto& entry : std::filesystem::directory_iterator(spec.checkpoint.directory)) {
    const bool whole =
        entry.path().filename().string().rfind("step-", 0) == 0 && entry.path().extension().empty();
    if (whole && entry.path().filename() > newest.filename()) newest = entry.path();
  }
  return newest;
}

std::map<std::string, std::string> CheckpointTensorFiles(const JobSpec& spec) {
  std::map<std::string, std::string> files;
  const std::string newest = NewestCheckpoint(spec);
  if (newest.empty()) return files;
  for (const auto& entry : std::filesystem::directory_iterator(newest)) {
    if (entry.path().extension() == ".safetensors") {
      files[entry.path().filename()] = ReadBytes(entry.path());
    }
  }
  return files;
}

}  // namespace megatrain
