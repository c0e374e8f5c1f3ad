// The directory of a job that tests run by `megatraind run`: its job file and data, and what the
// run leaves there.
#ifndef MEGATRAIN_TESTS_E2E_RUN_DIRECTORY_H_
#define MEGATRAIN_TESTS_E2E_RUN_DIRECTORY_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace megatrain {

// The absolute path of megatraind.
std::string MegatraindBinary();

void WriteText(const std::filesystem::path& path, const std::string& text);
// Sentences of a few words in a fixed random order.
std::string TrainingText(uint32_t seed);

// Makes the model `preset` in a directory. Reports a failure of the test if it cannot.
void MakeModel(const std::string& preset, const std::filesystem::path& directory);

class RunDirectory {
 public:
  RunDirectory() = default;
  // Makes the directory with a job of `steps` steps, four micro-batches each, that saves every ten
  // steps and exports the model. `more` lines are added to the job file.
  RunDirectory(const std::filesystem::path& path, const std::filesystem::path& model, int steps,
               const std::string& training = "global_batch: 4, micro_batch: 2",
               const std::string& engine = "threads: 1");

  const std::filesystem::path& path() const { return path_; }
  // megatraind run JOB with its metrics.
  std::vector<std::string> RunCommand(const std::vector<std::string>& more = {}) const;

  // The steps in the metrics file; a line that is being written is left out.
  std::vector<int> MetricSteps() const;
  void ExpectMetrics(int last) const;
  // Waits until step `step` is in the metrics or the process ended.
  void WaitForStep(ChildProcess& run, int step) const;
  // The names of the checkpoints, in order.
  std::vector<std::string> Checkpoints() const;
  static int StepOf(const std::string& checkpoint) { return std::atoi(checkpoint.c_str() + 5); }
  // The exported weights, and weights, moments and remainders of the last checkpoint; "" if there
  // is not both.
  std::string FinalState() const;

 private:
  std::filesystem::path path_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_RUN_DIRECTORY_H_
