// Saving and loading on the real file system.
#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/safetensors.h"
#include "engine/inspect/export_checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    config_ = JoinPath(root_, "model");
    directory_ = JoinPath(root_, "a/checkpoints");
    WriteConfigDirectory(files_, config_);
  }

  std::string Save(int64_t step, DType dtype, int64_t keep = 2) {
    const auto saved = SaveCheckpoint(directory_, step, dtype, config_, files_, keep);
    EXPECT_TRUE(saved.ok()) << saved.status();
    return saved.value_or("");
  }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory own_;
  const std::string root_ = own_.path();
  std::string config_, directory_;
};

TEST_P(CheckpointTest, RoundTrip) {
  const DType dtype = GetParam();
  const std::string path = Save(100, dtype);
  EXPECT_EQ(path, JoinPath(directory_, "step-00000100"));
  EXPECT_TRUE(VerifyCheckpoint(path).ok());
  const absl::Status content = CheckContent(path, dtype, files_);
  EXPECT_TRUE(content.ok()) << content;
  const auto state = ReadCheckpointState(path);
  ASSERT_TRUE(state.ok());
  EXPECT_TRUE(CheckResumable(*state, MakeState(TinyLayout(), dtype, 0)).ok());
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("step-00000100"));
}

TEST_P(CheckpointTest, TheEstimateIsWithinTheSmallFiles) {
  const std::string path = Save(1, GetParam());
  const auto manifest = ReadManifest(path);
  ASSERT_TRUE(manifest.ok());
  const int64_t estimate = CheckpointWriter::EstimateBytes(TinyLayout(), GetParam());
  // All but some 8 KiB for the small files: 1% of a megabyte, and real models have gigabytes.
  EXPECT_GT(estimate, manifest->total_bytes());
  EXPECT_LT(estimate - 10000, manifest->total_bytes());
}

TEST_P(CheckpointTest, WeightsAloneLoadAndAreAModelOfTheirOwn) {
  const DType dtype = GetParam();
  const std::string path = Save(3, dtype);
  const auto config = ReadModelDescription(path);
  ASSERT_TRUE(config.ok()) << config.status();
  const ModelLayout layout = BuildModelLayout(*config);
  EXPECT_EQ(ModelFingerprint(layout), ModelFingerprint(TinyLayout()));
  const auto weights = HfWeights::Open(path, layout);
  EXPECT_TRUE(weights.ok()) << weights.status();
  TileSet expected(TinyLayout(), dtype), loaded(TinyLayout(), dtype);
  expected.Fill(3);
  for (int i = 0; i < loaded.size(); ++i) {
    Tile tile = loaded.tile(i);
    tile.remainder = nullptr;
    tile.exp_avg = tile.exp_avg_sq = nullptr;
    ASSERT_TRUE(LoadTile(path, TinyLayout(), i, tile).ok());
    const char* want = static_cast<const char*>(expected.tile(i).weights);
    EXPECT_TRUE(std::equal(want, want + tile.weight_bytes(), static_cast<char*>(tile.weights)));
  }
}

TEST_P(CheckpointTest, ExportsAHuggingFaceDirectory) {
  const DType dtype = GetParam();
  const std::string path = Save(3, dtype);
  const std::string out = JoinPath(root_, "out");
  const absl::Status exported = ExportCheckpoint(path, out);
  ASSERT_TRUE(exported.ok()) << exported;
  EXPECT_THAT(*files_->ListDirectory(out),
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  const auto reader = SafetensorsReader::Open(files_, JoinPath(out, "model.safetensors"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  TileSet tiles(TinyLayout(), dtype);
  tiles.Fill(3);
  ForEachTensor(TinyLayout(), [&](int index, const TensorSpec& spec) {
    const SafetensorsTensor* tensor = (*reader)->Find(spec.name);
    ASSERT_NE(tensor, nullptr) << spec.name;
    EXPECT_EQ(tensor->dtype, DTypeName(dtype));
    std::string bytes(tensor->bytes(), '\0');
    ASSERT_TRUE((*reader)->Read(*tensor, 0, bytes.data(), tensor->bytes()).ok());
    EXPECT_EQ(bytes, std::string(static_cast<const char*>(tiles.tile(index).weights) +
                                     spec.offset * DTypeBytes(dtype),
                                 tensor->bytes()));
  });
}

INSTANTIATE_TEST_SUITE_P(Precisions, CheckpointTest, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& info) { return DTypeName(info.param); });

// A disk that keeps one byte wrong of the file whose name holds `name`, and says nothing.
class CorruptingFileSystem : public WatchedFileSystem {
 public:
  explicit CorruptingFileSystem(std::string name)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        name_(std::move(name)) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    auto file = WatchedFileSystem::NewWritableFile(path);
    if (!file.ok() || !absl::StrContains(path, name_)) return file;
    ++corrupted;
    return std::make_unique<File>(*std::move(file));
  }

  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    auto file = WatchedFileSystem::NewBlockFile(path, bytes);
    if (!file.ok() || !absl::StrContains(path, name_)) return file;
    ++corrupted;
    return std::make_unique<Blocks>(*std::move(file));
  }

  int corrupted = 0;  // files

 private:
  class Blocks : public BlockFile {
   public:
    explicit Blocks(std::unique_ptr<BlockFile> file) : file_(std::move(file)) {}
    absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
      const TransferBlock copy;
      std::memcpy(copy.data(), data, static_cast<size_t>(bytes));
      if (offset == 0) copy.data()[bytes - 1] ^= 1;
      return file_->Write(offset, copy.data(), bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<BlockFile> file_;
  };
  class File : public WritableFile {
   public:
    explicit File(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
    absl::Status Append(const void* data, int64_t bytes) override {
      std::string copy(static_cast<const char*>(data), static_cast<size_t>(bytes));
      if (!copy.empty() && !std::exchange(done_, true)) copy.back() ^= 1;
      return file_->Append(copy.data(), bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<WritableFile> file_;
    bool done_ = false;
  };
  const std::string name_;
};

TEST_F(CheckpointTest, WhatTheDiskCorruptsGetsNoNameAndTheOneBeforeIsKept) {
  const std::string good = Save(1, DType::kBF16, 1);
  for (const std::string& name :
       {WeightsFileName(0, TinyLayout().tile_count()),
        OptimizerFileName(TinyLayout().tile_count() - 1, TinyLayout().tile_count()),
        std::string(kHfIndexFileName), std::string("manifest.json")}) {
    SCOPED_TRACE(name);
    CorruptingFileSystem disk(name);
    const auto saved = SaveCheckpoint(directory_, 2, DType::kBF16, config_, &disk, 1);
    EXPECT_EQ(disk.corrupted, 1);
    ASSERT_FALSE(saved.ok());
    EXPECT_THAT(std::string(saved.status().message()), HasSubstr(name));
    EXPECT_THAT(*ListCheckpoints(directory_), ElementsAre(good));
    EXPECT_TRUE(VerifyCheckpoint(good).ok());
  }
}

TEST_F(CheckpointTest, KeepsAsManyAsAsked) {
  for (int64_t step = 1; step <= 4; ++step) Save(step, DType::kBF16, 2);
  EXPECT_THAT(*ListCheckpoints(directory_), ElementsAre(JoinPath(directory_, "step-00000004"),
                                                        JoinPath(directory_, "step-00000003")));
}

TEST_F(CheckpointTest, ADirectoryInThePlaceOfAFileIsDamage) {
  const std::string path = Save(1, DType::kF32);
  for (const char* const name : {kHfIndexFileName, kManifestFile}) {
    const std::string file = JoinPath(path, name);
    ASSERT_TRUE(files_->RemoveFile(file).ok());
    ASSERT_TRUE(files_->CreateDirectories(file).ok());
    const absl::Status status = VerifyCheckpoint(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  }
}

TEST_F(CheckpointTest, AnAbandonedWriterLeavesNothing) {
  TileSet tiles(TinyLayout(), DType::kBF16);
  {
    const auto writer = CheckpointWriter::Begin(directory_, TinyLayout(),
                                                MakeState(TinyLayout(), DType::kBF16, 5), config_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->WriteTile(2, {tiles.tile(2)}).ok());
    EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("step-00000005.tmp"));
    EXPECT_FALSE((*writer)->WriteTile(2, {tiles.tile(2)}).ok()) << "twice";
  }
  EXPECT_TRUE(files_->ListDirectory(directory_)->empty());
}

TEST_F(CheckpointTest, ATileThatTheModelDoesNotHaveIsRefused) {
  const TileSet tiles(TinyLayout(), DType::kBF16);
  for (const int index : {-1, TinyLayout().tile_count()}) {
    const auto writer = CheckpointWriter::Begin(directory_, TinyLayout(),
                                                MakeState(TinyLayout(), DType::kBF16, 5), config_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->WriteTile(index, {tiles.tile(0)}).code(), absl::StatusCode::kInternal);
  }
}

// It may be a user's, and the writer removes what it cannot finish.
TEST_F(CheckpointTest, WhatIsInTheWayOfTheUnfinishedDirectoryStays) {
  const std::string path = absl::StrCat(JoinPath(directory_, StepDirectoryName(5)), ".tmp");
  const auto expect_refused = [&] {
    const absl::Status status =
        SaveCheckpoint(directory_, 5, DType::kBF16, config_, files_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  };
  ASSERT_TRUE(files_->CreateDirectories(directory_).ok());
  ASSERT_TRUE(WriteFileSynced(files_, path, "notes").ok());
  expect_refused();
  EXPECT_EQ(*ReadWholeFile(files_, path, 10), "notes");
  ASSERT_TRUE(files_->RemoveFile(path).ok());
  ASSERT_TRUE(files_->CreateDirectories(JoinPath(path, "mine")).ok());
  expect_refused();
  EXPECT_TRUE(files_->IsDirectory(JoinPath(path, "mine")));
}

TEST_F(CheckpointTest, AFileWithItsNameIsNotReplaced) {
  ASSERT_TRUE(files_->CreateDirectories(directory_).ok());
  const std::string path = JoinPath(directory_, StepDirectoryName(5));
  ASSERT_TRUE(WriteFileSynced(files_, path, "notes").ok());
  const absl::Status status = SaveCheckpoint(directory_, 5, DType::kBF16, config_, files_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(*ReadWholeFile(files_, path, 10), "notes");
}

TEST_F(CheckpointTest, FinishWithoutEveryTileIsAnError) {
  TileSet tiles(TinyLayout(), DType::kBF16);
  auto writer = CheckpointWriter::Begin(directory_, TinyLayout(),
                                        MakeState(TinyLayout(), DType::kBF16, 5), config_);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->WriteTile(0, {tiles.tile(0)}).ok());
  EXPECT_FALSE((*writer)->Finish(Retention()).ok());
  EXPECT_FALSE((*writer)->WriteTile(1, {tiles.tile(1)}).ok());
}

TEST_F(CheckpointTest, AnotherModelOrPrecisionDoesNotLoad) {
  const std::string path = Save(1, DType::kBF16);
  const auto expect_refused = [&](const ModelLayout& layout, DType dtype, const char* what) {
    TileSet tiles(layout, dtype);
    const absl::Status status = LoadTile(path, layout, 1, tiles.tile(1));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  expect_refused(TinyLayout(), DType::kF32, "is BF16");
  ModelDescription config = TinyConfig();
  config.layers.push_back(config.layers.back());
  expect_refused(BuildModelLayout(config), DType::kBF16, "4 tiles");
  config = TinyConfig();
  for (LayerDescription& layer : config.layers) layer.feed_forward.intermediate = 24;
  expect_refused(BuildModelLayout(config), DType::kBF16, "mlp.");
  config = TinyConfig();
  for (LayerDescription& layer : config.layers) layer.attention.qk_norm = QkNorm::kHead;
  expect_refused(BuildModelLayout(config), DType::kBF16, "has no tensor");
  ModelDescription biased = TinyConfig();
  for (LayerDescription& layer : biased.layers) layer.attention.qkv_bias = true;
  expect_refused(BuildModelLayout(biased), DType::kBF16, "_proj.bias");
}

TEST_F(CheckpointTest, AnUnwritableDirectoryIsNamed) {
  WriteFileSynced(files_, JoinPath(root_, "file"), "").IgnoreError();
  const std::string directory = JoinPath(root_, "file/checkpoints");
  const auto saved = SaveCheckpoint(directory, 1, DType::kBF16, config_, files_);
  ASSERT_FALSE(saved.ok());
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr(JoinPath(root_, "file")));
  if (geteuid() == 0) return;  // root may write anywhere
  const std::string locked = JoinPath(root_, "locked");
  ASSERT_TRUE(files_->CreateDirectories(locked).ok());
  ASSERT_EQ(chmod(locked.c_str(), 0500), 0);
  EXPECT_EQ(SaveCheckpoint(locked, 1, DType::kBF16, config_, files_).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(CheckpointTest, AMissingConfigurationIsRefusedBeforeTilesAreWritten) {
  const auto saved = SaveCheckpoint(directory_, 1, DType::kBF16, JoinPath(root_, "none"), files_);
  EXPECT_EQ(saved.status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(files_->ListDirectory(directory_)->empty());
}

// A checkpoint with a folder of chat templates is one like others.
TEST_F(CheckpointTest, OneWithFurtherChatTemplatesIsReplacedAndRemoved) {
  const std::string template_path = "additional_chat_templates/rag.jinja";
  ASSERT_TRUE(files_->CreateDirectories(JoinPath(config_, "additional_chat_templates")).ok());
  ASSERT_TRUE(WriteFileSynced(files_, JoinPath(config_, template_path), "rag").ok());
  for (const int64_t step : {1, 2, 2}) {
    const std::string path = Save(step, DType::kBF16, 1);
    EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre(StepDirectoryName(step)));
    EXPECT_TRUE(VerifyCheckpoint(path).ok());
    EXPECT_EQ(*ReadWholeFile(files_, JoinPath(path, template_path), 10), "rag");
  }
}

TEST_F(CheckpointTest, AManifestThatIsTooLongIsDamage) {
  const std::string path = Save(1, DType::kF32);
  std::filesystem::resize_file(JoinPath(path, kManifestFile), kManifestBytesMax + 1);
  const absl::Status status = ReadManifest(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(IsDamagedCheckpoint(status));
}

}  // namespace
}  // namespace megatrain
