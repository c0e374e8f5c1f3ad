// A job's files are reached through the file system that is handed in, and in no other way.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "engine/base/file.h"
#include "engine/engine.h"
#include "engine/inspect/export_checkpoint.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {
namespace {

constexpr char kElsewhere[] = "/elsewhere";

// Shows a directory of the machine as /elsewhere, where there is nothing.
class MovedFileSystem : public FileSystem {
 public:
  explicit MovedFileSystem(std::string directory) : directory_(std::move(directory)) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    return posix_->NewWritableFile(Moved(path));
  }
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    return posix_->NewBlockFile(Moved(path), bytes);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    return posix_->OpenForReading(Moved(path));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return posix_->Rename(Moved(from), Moved(to));
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return posix_->SyncDirectory(Moved(path));
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return posix_->CreateDirectories(Moved(path));
  }
  absl::Status RemoveFile(const std::string& path) override {
    return posix_->RemoveFile(Moved(path));
  }
  absl::Status RemoveTree(const std::string& path) override {
    return posix_->RemoveTree(Moved(path));
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return posix_->ListDirectory(Moved(path));
  }
  bool FileExists(const std::string& path) override { return posix_->FileExists(Moved(path)); }
  bool IsDirectory(const std::string& path) override { return posix_->IsDirectory(Moved(path)); }
  absl::StatusOr<FileInfo> Examine(const std::string& path) override {
    return posix_->Examine(Moved(path));
  }
  absl::StatusOr<std::string> RealPath(const std::string& path) override {
    if (!posix_->FileExists(Moved(path))) return FileError("examine", path, ENOENT);
    return path;
  }
  absl::Status CheckWritable(const std::string& path) override {
    return posix_->CheckWritable(Moved(path));
  }
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override {
    return posix_->TryLock(Moved(path));
  }
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) override {
    return posix_->FreeDiskBytes(Moved(path));
  }

 private:
  std::string Moved(const std::string& path) const {
    EXPECT_TRUE(absl::StartsWith(path, kElsewhere)) << path;
    return directory_ + path.substr(std::string(kElsewhere).size());
  }

  FileSystem* const posix_ = PosixFileSystem();
  const std::string directory_;
};

TEST(JobFilesTest, AJobTouchesNothingBesideTheFileSystemItIsGiven) {
  const std::string directory = FreshDirectory("moved");
  std::filesystem::copy(LoadModelReference("qwen2").directory, directory + "/model");
  std::ofstream(directory + "/train.txt") << std::string(4000, 'a');
  std::ofstream(directory + "/eval.jsonl") << "{\"text\": \"" << std::string(800, 'b') << "\"}\n";
  JobSpec spec;
  spec.name = "moved";
  spec.model.path = "/elsewhere/model";
  spec.data.train = {{"/elsewhere/train.txt", DataFormat::kText, ""}};
  spec.data.eval = {{"/elsewhere/eval.jsonl", DataFormat::kText, ""}};
  spec.data.tokenizer = "bytes";
  spec.data.sequence_length = 32;
  spec.training.steps = 2;
  spec.training.global_batch = 2;
  spec.training.micro_batch = 1;
  spec.checkpoint.directory = "/elsewhere/checkpoints";
  spec.output.directory = "/elsewhere/output";

  MovedFileSystem files(directory);
  EngineHostOptions host_options;
  host_options.threads = 2;
  const auto host = EngineHost::Create(host_options);
  ASSERT_TRUE(host.ok()) << host.status();
  TrainingOptions options;
  options.files = &files;
  for (const int64_t steps : {2, 3}) {  // the second goes on from the first one's checkpoint
    spec.training.steps = steps;
    TrainingControl control;
    int64_t first = 0;
    const auto note = [&first](const RunEvent& event) {
      if (const auto* const begin = std::get_if<StepsBegin>(&event)) first = begin->first_step;
    };
    const auto outcome = RunTraining(**host, spec, options, &control, note);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(first, steps == 2 ? 1 : 3);
  }
  EXPECT_TRUE(std::filesystem::exists(directory + "/output/config.json"));
  EXPECT_TRUE(std::filesystem::exists(directory + "/checkpoints/data"));
  const absl::Status exported =
      ExportCheckpoint("/elsewhere/checkpoints/step-00000003", "/elsewhere/exported", &files);
  EXPECT_TRUE(exported.ok()) << exported;
  EngineBudget budget;
  budget.threads = 2;
  budget.memory.SetPool(int64_t{1} << 30, int64_t{1} << 30);
  EXPECT_TRUE(PlanTraining(spec, budget, &files).ok());
  EXPECT_FALSE(std::filesystem::exists(kElsewhere));
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The exported model's apply_chat_template renders the texts that were trained.
TEST(JobFilesTest, TheOutputHasTheChatTemplateOfTheJob) {
  const std::string directory = FreshDirectory("template");
  const std::string model = directory + "/model";
  std::filesystem::copy(LoadModelReference("qwen2").directory, model);
  std::filesystem::create_directory(model + "/additional_chat_templates");
  std::ofstream(model + "/additional_chat_templates/tool_use.jinja") << "tools {{ messages }}";
  std::ofstream(model + "/additional_chat_templates/notes.txt") << "not a template";
  const std::string program = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  std::ofstream(model + "/chat_template.jinja") << "the model's: " << program;
  std::ofstream(directory + "/own.jinja") << program;
  std::ofstream data(directory + "/train.jsonl");
  for (int i = 0; i < 40; ++i) {
    data << R"({"messages": [{"role": "user", "content": "a question"},)"
         << R"( {"role": "assistant", "content": "answer )" << i << "\"}]}\n";
  }
  data.close();
  JobSpec spec;
  spec.name = "template";
  spec.model.path = model;
  spec.data.train = {{directory + "/train.jsonl", DataFormat::kMessages, ""}};
  spec.data.tokenizer = "bytes";
  spec.data.sequence_length = 128;
  spec.training.steps = 1;
  spec.training.global_batch = 2;
  spec.training.micro_batch = 1;
  EngineHostOptions host_options;
  host_options.threads = 2;
  const auto host = EngineHost::Create(host_options);
  ASSERT_TRUE(host.ok()) << host.status();
  for (const std::string name : {"auto", "own.jinja", "chatml"}) {
    const std::string to = directory + "/" + name + "_run";
    spec.data.chat_template = name == "own.jinja" ? directory + "/" + name : name;
    spec.checkpoint.directory = to + "/checkpoints";
    spec.output.directory = to + "/output";
    TrainingControl control;
    const auto outcome = RunTraining(**host, spec, {}, &control, [](const RunEvent&) {});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const absl::Status exported =
        ExportCheckpoint(to + "/checkpoints/step-00000001", to + "/exported");
    ASSERT_TRUE(exported.ok()) << exported;
    for (const std::string& out : {to + "/output", to + "/exported"}) {
      const std::string text = Content(out + "/chat_template.jinja");
      if (name == "chatml") {
        EXPECT_NE(text.find("{{- '<|im_start|>' + message['role'] + '\\n' }}"), std::string::npos);
      } else {
        EXPECT_EQ(text, name == "auto" ? "the model's: " + program : program);
      }
      // Those of the model would go before it for records with tools.
      const std::string further = out + "/additional_chat_templates";
      EXPECT_EQ(std::filesystem::exists(further), name == "auto");
      EXPECT_EQ(Content(further + "/tool_use.jinja"), name == "auto" ? "tools {{ messages }}" : "");
      EXPECT_FALSE(std::filesystem::exists(further + "/notes.txt"));
    }
  }
}

}  // namespace
}  // namespace megatrain
