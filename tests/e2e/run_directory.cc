#include "tests/e2e/run_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <thread>

#include "tests/support/read_file.h"

namespace megatrain {

namespace fs = std::filesystem;

std::string MegatraindBinary() { return fs::absolute("server/megatraind").string(); }

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string TrainingText(uint32_t seed) {
  const char* words[] = {"the",   "model", "is",      "larger",  "than",   "memory",
                         "a",     "tile",  "streams", "through", "device", "and",
                         "every", "bit",   "stays",   "same"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < 12000) {
    for (int i = 0; i < 8; ++i) {
      text += words[random() % std::size(words)];
      text += i < 7 ? " " : ".\n";
    }
  }
  return text;
}

void MakeModel(const std::string& preset, const fs::path& directory) {
  fs::create_directories(directory.parent_path());
  ChildProcess init(
      {MegatraindBinary(), "init", "--preset", preset, "--out", directory, "--seed", "3"},
      directory.string() + ".log");
  ASSERT_EQ(init.Wait(), 0) << init.Output();
}

RunDirectory::RunDirectory(const fs::path& path, const fs::path& model, int steps,
                           const std::string& training, const std::string& engine)
    : path_(path) {
  fs::create_directories(path);
  WriteText(path / "train.txt", TrainingText(1));
  WriteText(path / "job.yaml",
            "name: tiny\n"
            "model: {path: " +
                model.string() +
                "}\n"
                "data:\n"
                "  train: [{path: train.txt, format: text}]\n"
                "  sequence_length: 64\n"
                "  tokenizer: bytes\n"
                "training: {steps: " +
                std::to_string(steps) + ", " + training +
                "}\n"
                "optimizer: {learning_rate: 1.0e-3}\n"
                "checkpoint: {directory: checkpoints, every_steps: 10, keep: 2}\n"
                "output: {directory: out}\n"
                "engine: {device: cpu, " +
                engine + "}\n");
}

std::vector<std::string> RunDirectory::RunCommand(const std::vector<std::string>& more) const {
  std::vector<std::string> command = {MegatraindBinary(), "run", path_ / "job.yaml",
                                      "--metrics-out", path_ / "metrics.jsonl"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::vector<int> RunDirectory::MetricSteps() const {
  const std::string text = ReadFileOrEmpty(path_ / "metrics.jsonl");
  std::vector<int> steps;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr,
                                            /*allow_exceptions=*/false);
    steps.push_back(line.is_object() ? line.value("step", -1) : -1);
  }
  return steps;
}

void RunDirectory::ExpectMetrics(int last) const {
  std::vector<int> expected;
  for (int step = 1; step <= last; ++step) expected.push_back(step);
  EXPECT_EQ(MetricSteps(), expected);
}

void RunDirectory::WaitForStep(ChildProcess& run, int step) const {
  while (run.Running()) {
    const std::vector<int> steps = MetricSteps();
    if (!steps.empty() && steps.back() >= step) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::string> RunDirectory::Checkpoints() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_ / "checkpoints", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && name.size() == 13) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string RunDirectory::FinalState() const {
  std::string state = ReadFileOrEmpty(path_ / "out/model.safetensors");
  const std::vector<std::string> checkpoints = Checkpoints();
  if (checkpoints.empty() || state.empty()) return "";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path_ / "checkpoints" / checkpoints.back())) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) state += ReadFileOrEmpty(file);
  return checkpoints.back() + state;
}

}  // namespace megatrain
