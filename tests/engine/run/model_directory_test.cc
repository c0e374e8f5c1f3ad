// What a run needs of model.path and what it says of it. A run that goes on needs the
// configuration, and of a wrapper the tensors that it carries, but not the weights that it began
// with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/base/file.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/safetensors.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kShard[] = "model-00001-of-00001.safetensors";

int64_t DataBytes(const SafetensorsHeader& header) {
  return header.tensors.empty() ? 0 : header.tensors.back().end;
}

using Replacements = std::vector<std::pair<std::string, std::string>>;

// Writes model.safetensors of `from` to a shard in `to` with an index beside it. Names of tensors
// are changed by `names`, and tensors of zeros are added.
void CopyWeights(const std::string& from, const std::string& to, const Replacements& names = {},
                 const std::vector<SafetensorsDeclaration>& more = {}) {
  FileSystem* const files = PosixFileSystem();
  const auto reader = SafetensorsReader::Open(files, from + "/" + kHfWeightsFileName);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<SafetensorsDeclaration> declarations;
  HfWeightMap weight_map;
  for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
    const std::string name = absl::StrReplaceAll(tensor.name, names);
    declarations.push_back({name, tensor.dtype, tensor.shape});
    weight_map[name] = kShard;
  }
  for (const SafetensorsDeclaration& tensor : more) {
    declarations.push_back(tensor);
    weight_map[tensor.name] = kShard;
  }
  const auto writer = SafetensorsWriter::Create(files, JoinPath(to, kShard), declarations);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
    std::string data(static_cast<size_t>(tensor.bytes()), '\0');
    ASSERT_TRUE((*reader)->Read(tensor, 0, data.data(), tensor.bytes()).ok());
    ASSERT_TRUE((*writer)->Append(data.data(), tensor.bytes()).ok());
  }
  const std::string zeros(
      static_cast<size_t>((*writer)->data_bytes() - DataBytes((*reader)->header())), '\0');
  ASSERT_TRUE((*writer)->Append(zeros.data(), std::ssize(zeros)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  ASSERT_TRUE(
      WriteFileSynced(files, JoinPath(to, kHfIndexFileName), MakeHfIndex(weight_map, 1)).ok());
}

class ResumeWithoutWeightsTest : public ::testing::Test {
 protected:
  // Trains two steps of a copy of a reference model, whose tensors' names are changed by `names`.
  void Train(const std::string& model, const Replacements& names = {}) {
    source_ = "tests/golden/models/" + model;
    directory_ = FreshDirectory("model");
    fs::copy_file(source_ + "/config.json", directory_ + "/config.json");
    fs::copy_file(source_ + "/tokens.bin", directory_ + "/tokens.bin");
    CopyWeights(source_, directory_, names);
    spec_ = HookedJob("job");
    spec_.model.path = directory_;
    spec_.data.train = {{directory_ + "/tokens.bin", DataFormat::kTokens, "uint16"}};
    spec_.data.eval.clear();
    spec_.training.steps = 2;
    HookedRun run;
    const auto outcome = run.Train(*host_, spec_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    spec_.training.steps = 3;
  }
  // Goes on for one step. Returns the error.
  absl::Status Resume() {
    HookedRun run;
    run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 3); };
    return run.Train(*host_, spec_).status();
  }

  const std::unique_ptr<EngineHost> host_ = HostWithPool();
  std::string source_, directory_;
  JobSpec spec_;
};

TEST_F(ResumeWithoutWeightsTest, ADenseModelNeedsNone) {
  Train("qwen2");
  fs::remove(directory_ + "/" + kShard);
  fs::remove(directory_ + "/" + kHfIndexFileName);
  EXPECT_EQ(Resume(), absl::OkStatus());
}

// The names of experts are those of the files, not the family's own.
TEST_F(ResumeWithoutWeightsTest, ExpertsHaveTheNamesOfTheCheckpoint) {
  Train("mixtral", {{"block_sparse_moe", "mlp"}});
  fs::remove(directory_ + "/" + kShard);
  fs::remove(directory_ + "/" + kHfIndexFileName);
  EXPECT_EQ(Resume(), absl::OkStatus());
}

TEST_F(ResumeWithoutWeightsTest, ExpertsHaveTheNamesOfTheCheckpointThatIsNamed) {
  Train("mixtral", {{"block_sparse_moe", "mlp"}});
  fs::remove(directory_ + "/" + kShard);
  fs::remove(directory_ + "/" + kHfIndexFileName);
  HookedRun run;
  run.options.resume = ResumeMode::kPath;
  run.options.resume_path = spec_.checkpoint.directory + "/step-00000002";
  run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 3); };
  spec_.checkpoint.directory = FreshDirectory("elsewhere") + "/checkpoints";
  EXPECT_EQ(run.Train(*host_, spec_).status(), absl::OkStatus());
  EXPECT_EQ(run.run.records.size(), 1u);
}

TEST_F(ResumeWithoutWeightsTest, AWrapperNamesTheFileThatItsTensorsAreCarriedFrom) {
  // This one is not tied, and its files say so, not its config.json.
  Train("mistral3_wrapper");
  fs::remove(directory_ + "/" + kShard);
  absl::Status status = Resume();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(directory_ + "/" + kShard + " is missing"), HasSubstr("restore")));
  fs::remove(directory_ + "/" + kHfIndexFileName);
  status = Resume();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(directory_), HasSubstr(kHfWeightsFileName), HasSubstr("restore")));
  CopyWeights(source_, directory_);
  EXPECT_EQ(Resume(), absl::OkStatus());
}

TEST_F(ResumeWithoutWeightsTest, AnotherVisionTowerIsNoticed) {
  Train("gemma3_wrapper");
  CopyWeights(source_, directory_, {{"vision_tower", "vision_tower.another"}});
  const absl::Status status = Resume();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensors beside the text model"));
}

TEST_F(ResumeWithoutWeightsTest, RandomWeightsOfAWrapperNameTheMissingFile) {
  Train("gemma3_wrapper");
  fs::remove(directory_ + "/" + kShard);
  spec_.model.random_initialization = true;
  spec_.checkpoint.directory = FreshDirectory("new") + "/checkpoints";
  const absl::Status status = Resume();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kShard));
}

TEST(IgnoredTensorsTest, ARunAndAPlanSaySoOnce) {
  JobSpec spec = HookedJob("job");
  const std::string directory = FreshDirectory("model");
  const std::string source = "tests/golden/models/glm4_moe";
  fs::copy_file(source + "/tokens.bin", directory + "/tokens.bin");
  fs::copy_file(source + "/config.json", directory + "/config.json");
  CopyWeights(source, directory, {},
              {{"model.layers.2.eh_proj.weight", "BF16", {2, 4}},
               {"model.layers.2.hnorm.weight", "BF16", {2}}});
  spec.model.path = directory;
  spec.data.train = {{directory + "/tokens.bin", DataFormat::kTokens, "uint16"}};
  spec.data.eval.clear();
  spec.training.steps = 1;
  HookedRun run;
  const auto outcome = run.Train(*HostWithPool(), spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const auto says = HasSubstr("2 tensors of layers that predict further tokens (model.layers.2.*)");
  int lines = 0;
  for (const std::string& line : run.run.messages) lines += testing::Matches(says)(line);
  EXPECT_EQ(lines, 1);
  const auto plan = PlanTraining(spec, GpuOpener());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->table, says);
}

}  // namespace
}  // namespace megatrain
