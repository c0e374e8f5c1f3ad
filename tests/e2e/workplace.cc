#include "tests/e2e/workplace.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "tests/support/child_process.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

std::string TrainingText() {
  const char* const words[] = {"the", "host", "holds", "a", "model", "and", "device", "layer"};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < 200'000) {
    for (int i = 0; i < 8; ++i) text += std::string(words[random() % std::size(words)]) + " ";
    text += "\n";
  }
  return text;
}

}  // namespace

Workplace::Workplace(std::string binary, std::string directory)
    : binary_(std::move(binary)), directory_(std::move(directory)) {}

Workplace::~Workplace() {
  std::error_code error;
  fs::remove_all(directory_, error);
}

absl::StatusOr<std::unique_ptr<Workplace>> Workplace::Make(const std::string& binary,
                                                           const std::string& preset) {
  // A socket's path must be short.
  std::string pattern = "/tmp/mtbench_XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::InternalError("cannot make a directory in /tmp");
  }
  std::unique_ptr<Workplace> place(new Workplace(fs::absolute(binary).string(), pattern));
  std::ofstream(pattern + "/train.txt") << TrainingText();
  ChildProcess init({place->binary_, "init", "--preset", preset, "--out", pattern + "/model"},
                    pattern + "/init.log");
  if (init.Wait() != 0) return absl::InternalError(init.Output());
  return place;
}

std::string Workplace::Yaml(const JobShape& shape) const {
  return absl::StrCat(
      "name: bench\nmodel: {path: ", directory_, "/model}\ndata:\n  train: [{path: ", directory_,
      "/train.txt, format: text}]\n  tokenizer: bytes\n  sequence_length: ", shape.sequence_length,
      "\ntraining: {steps: ", shape.steps, ", global_batch: ", shape.global_batch,
      ", micro_batch: ", shape.micro_batch, ", seed: ", shape.seed,
      ", eval_every: 0}\noptimizer: {learning_rate: 1.0e-3}\ncheckpoint: {every_steps: ",
      shape.checkpoint_every_steps > 0 ? shape.checkpoint_every_steps : shape.steps,
      ", keep: 2}\nengine: {device: cpu, threads: ", shape.threads, ", devices: ", shape.devices,
      "}\n");
}

absl::Status Workplace::RunUndisturbed(const JobShape& shape, const std::string& output) const {
  const std::string directory = absl::StrCat(output, ".run");
  fs::create_directories(directory);
  std::ofstream(directory + "/job.yaml") << Yaml(shape);
  ChildProcess run({binary_, "run", directory + "/job.yaml", "--set", "output.directory=" + output},
                   directory + "/log");
  return run.Wait() == 0 ? absl::OkStatus() : absl::InternalError(run.Output());
}

v1::CreateJobRequest Workplace::Request(const JobShape& shape, const std::string& output) const {
  v1::CreateJobRequest request;
  v1::JobFile* const file = request.mutable_job()->mutable_file();
  file->set_yaml(Yaml(shape));
  file->set_file_name("job.yaml");
  if (!output.empty()) file->add_overrides("output.directory=" + output);
  if (shape.link_gigabytes_per_second > 0) {
    // Does not touch the bits.
    file->add_overrides(
        absl::StrCat("engine.link_gigabytes_per_second=", shape.link_gigabytes_per_second));
  }
  return request;
}

absl::StatusOr<DaemonProcess::Options> Workplace::NewDaemon(const std::string& name) const {
  DaemonProcess::Options options;
  options.binary = binary_;
  options.directory = absl::StrCat(directory_, "/", name);
  std::error_code error;
  fs::create_directory(options.directory, error);
  if (!error) fs::permissions(options.directory, fs::perms::owner_all, error);
  if (error) return absl::InternalError(absl::StrCat(options.directory, ": ", error.message()));
  return options;
}

double Workplace::ReadModelSeconds() const {
  const auto start = std::chrono::steady_clock::now();
  DirectoryContents(directory_ + "/model");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string DirectoryContents(const std::string& directory) {
  std::vector<fs::path> files;
  if (fs::exists(directory)) {
    for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string contents;
  for (const fs::path& file : files) {
    absl::StrAppend(&contents, file.filename().string(), "\n", ReadFileOrEmpty(file), "\n");
  }
  return contents;
}

}  // namespace megatrain
