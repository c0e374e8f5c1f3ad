// Checkpoints of a wrapper's text model: each is a whole model, with the tensors that are carried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/safetensors.h"
#include "engine/inspect/export_checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/support/counting_file_system.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr DType kDType = DType::kBF16;

// The data of the tensors that are not the text model's.
std::map<std::string, std::string> Carried(const std::string& directory) {
  std::map<std::string, std::string> tensors;
  const auto found = FindHfWeightFiles(PosixFileSystem(), directory);
  EXPECT_TRUE(found.ok()) << found.status();
  for (const std::string& path : found->paths) {
    const auto reader = SafetensorsReader::Open(PosixFileSystem(), path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
      if (tensor.name.starts_with("language_model.")) continue;
      std::string& data = tensors[tensor.name];
      data.resize(tensor.bytes());
      EXPECT_TRUE((*reader)->Read(tensor, 0, data.data(), tensor.bytes()).ok());
    }
  }
  return tensors;
}

class WrapperCheckpointTest : public ::testing::Test {
 protected:
  WrapperCheckpointTest() {
    for (const std::string name : {"/config.json", "/model.safetensors"}) {
      std::filesystem::copy_file("tests/golden/models/gemma3_wrapper" + name, source_ + name);
    }
    const auto model = ReadModelDescription(source_);
    EXPECT_TRUE(model.ok()) << model.status();
    layout_ = BuildModelLayout(*model);
  }

  absl::StatusOr<std::string> Save(int64_t step) {
    TileSet tiles(layout_, kDType);
    tiles.Fill(step);
    auto writer = CheckpointWriter::Begin(root_ + "/checkpoints", layout_,
                                          MakeState(layout_, kDType, step), source_);
    if (!writer.ok()) return writer.status();
    for (int i = 0; i < tiles.size(); ++i) {
      if (const auto status = (*writer)->WriteTile(i, {tiles.tile(i)}); !status.ok()) return status;
    }
    return (*writer)->Finish({});
  }

  const std::string root_ = FreshDirectory("root");
  const std::string source_ = FreshDirectory("source");
  ModelLayout layout_;
};

TEST_F(WrapperCheckpointTest, IsAWholeModelWithoutTheDirectoryThatWasRead) {
  const auto carried = Carried(source_);
  EXPECT_GT(carried.size(), 10u);
  const auto path = Save(7);
  ASSERT_TRUE(path.ok()) << path.status();
  std::filesystem::remove_all(source_);
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
  EXPECT_EQ(Carried(*path), carried);

  const auto model = ReadModelDescription(*path);
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelLayout layout = BuildModelLayout(*model);
  EXPECT_EQ(ModelFingerprint(layout), ModelFingerprint(layout_));
  EXPECT_TRUE(HfWeights::Open(*path, layout).ok());
  TileSet expected(layout_, kDType), loaded(layout_, kDType);
  expected.Fill(7);
  for (int i = 0; i < loaded.size(); ++i) {
    ASSERT_TRUE(LoadTile(*path, layout_, i, loaded.tile(i)).ok());
  }
  EXPECT_TRUE(loaded == expected);

  const std::string out = root_ + "/out";
  const absl::Status exported = ExportCheckpoint(*path, out);
  ASSERT_TRUE(exported.ok()) << exported;
  EXPECT_EQ(Carried(out), carried);
}

TEST_F(WrapperCheckpointTest, CountsTheCarriedBytes) {
  const auto path = Save(1);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto manifest = ReadManifest(*path);
  ASSERT_TRUE(manifest.ok());
  const int64_t estimate = CheckpointWriter::EstimateBytes(layout_, kDType);
  EXPECT_GT(estimate, manifest->total_bytes());
  EXPECT_LT(estimate - 20000, manifest->total_bytes());
}

TEST_F(WrapperCheckpointTest, ADamagedCarriedTensorIsNotExported) {
  const auto path = Save(1);
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string file = *path + "/model-carried.safetensors";
  std::string bytes = *ReadWholeFile(PosixFileSystem(), file, 1 << 20);
  bytes.back() ^= 1;
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), file, bytes).ok());
  const absl::Status status = ExportCheckpoint(*path, root_ + "/out");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model-carried.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out"));
}

TEST_F(WrapperCheckpointTest, AnExportReadsTheManifestAndEachTileOnce) {
  const auto path = Save(1);
  ASSERT_TRUE(path.ok()) << path.status();
  CountingFileSystem files;
  const absl::Status exported = ExportCheckpoint(*path, root_ + "/out", &files);
  ASSERT_TRUE(exported.ok()) << exported;
  // The manifest once more for the files that are copied as they are; of a tile, the header and the
  // content.
  EXPECT_EQ(files.opened("manifest.json"), 2);
  for (int tile = 0; tile < layout_.tile_count(); ++tile) {
    const std::string name = WeightsFileName(tile, layout_.tile_count());
    EXPECT_GE(files.opened(name), 2);
    EXPECT_LE(files.opened(name), 5) << name;
  }
}

TEST_F(WrapperCheckpointTest, IsNotWrittenWithOtherTensors) {
  const CheckpointState state = MakeState(layout_, kDType, 1);
  HfSideFiles side_files(source_);
  side_files.carried_digest = "another";
  const auto writer = CheckpointWriter::Begin(root_ + "/checkpoints", layout_, state, side_files);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WrapperCheckpointTest, IsNotWrittenWithoutWhatIsCarried) {
  std::filesystem::remove(source_ + "/model.safetensors");
  EXPECT_FALSE(Save(1).ok());
  EXPECT_TRUE(std::filesystem::is_empty(root_ + "/checkpoints"));
}

// A file system with a disk of which so much is free.
class FreeBytesFileSystem : public WatchedFileSystem {
 public:
  explicit FreeBytesFileSystem(int64_t bytes)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }), bytes_(bytes) {}
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string&) override { return bytes_; }

 private:
  const int64_t bytes_;
};

TEST_F(WrapperCheckpointTest, NeedsRoomForWhatIsCarriedToo) {
  const int64_t needed = CheckpointWriter::EstimateBytes(layout_, kDType);
  for (const int64_t free : {needed - 1, needed}) {
    FreeBytesFileSystem files(free);
    const auto writer = CheckpointWriter::Begin(root_ + "/checkpoints", layout_,
                                                MakeState(layout_, kDType, 1), source_, &files);
    EXPECT_EQ(writer.ok(), free == needed) << writer.status();
    EXPECT_EQ(IsDiskFull(writer.status()), free < needed) << writer.status();
  }
}

TEST_F(WrapperCheckpointTest, ItsIndexHasEveryTensorAndTheBytesOfAll) {
  const auto path = Save(1);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto found = FindHfWeightFiles(PosixFileSystem(), *path);
  ASSERT_TRUE(found.ok()) << found.status();
  HfWeightMap places;
  int64_t bytes = 0;
  for (const std::string& file : found->paths) {
    const auto reader = SafetensorsReader::Open(PosixFileSystem(), file);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
      places[tensor.name] = file.substr(file.rfind('/') + 1);
      bytes += tensor.bytes();
    }
  }
  EXPECT_EQ(found->weight_map, places);
  EXPECT_THAT(*ReadWholeFile(PosixFileSystem(), found->index, 1 << 20),
              HasSubstr(absl::StrCat("\"total_size\": ", bytes, "\n")));
}

}  // namespace
}  // namespace megatrain
