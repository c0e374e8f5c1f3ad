// WriteHfWeights: a matrix whose columns lie in several tiles, and tensors that are not whole.
// ReplaceDirectory: what stays beside the directory, and others that write it.
#include "engine/hf/hf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/placed_writer.h"
#include "engine/hf/safetensors.h"
#include "tests/engine/hf/model_fixture.h"
#include "tests/support/refusing_file_system.h"

namespace megatrain {
namespace {

// Counts the bytes of blocks that are written.
class CountingBlocks : public WatchedFileSystem {
 public:
  CountingBlocks() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    auto file = WatchedFileSystem::NewBlockFile(path, bytes);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*std::move(file), &written_);
  }
  int64_t written() const { return written_; }

 private:
  class File : public BlockFile {
   public:
    File(std::unique_ptr<BlockFile> file, int64_t* written)
        : file_(std::move(file)), written_(*written) {}
    absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
      written_ += bytes;
      return file_->Write(offset, data, bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<BlockFile> file_;
    int64_t& written_;
  };
  int64_t written_ = 0;
};

// Four layers with per-layer inputs, whose tables are three strips and a bit together.
ModelLayout Layout() {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 8,
                                         .layers = 4,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .head_dim = 4,
                                         .intermediate = 6,
                                         .max_positions = 32});
  constexpr int64_t kWidth = 37, kRows = 3 * kStripBytes / (4 * kWidth * 4) + 1000;
  for (LayerDescription& layer : model.layers) layer.per_layer_input = {kWidth, kRows};
  return BuildModelLayout(model);
}

TEST(HfWriterTest, ColumnsOfSeveralTilesAreWrittenInStrips) {
  const ModelLayout layout = Layout();
  const std::string directory = FreshDirectory("out");
  CountingBlocks files;
  int64_t given = 0, held = 0;
  const auto emit = [&](int, const TensorSpec& tensor, ElementRange part, TensorSink sink) {
    std::vector<float> values;
    for (const TensorRun& run : RunsOf(tensor, part)) {
      for (int64_t i = 0; i < run.elements; ++i) {
        values.push_back(TestValue(tensor.name, run.source + i));
      }
    }
    // In pieces that end anywhere.
    constexpr int64_t kPiece = 1001;
    const int64_t count = static_cast<int64_t>(values.size());
    for (int64_t i = 0; i < count; i += kPiece) {
      const absl::Status status = sink(&values[static_cast<size_t>(i)],
                                       std::min(kPiece, count - i) * int64_t{sizeof(float)});
      if (!status.ok()) return status;
    }
    given += count * int64_t{sizeof(float)};
    held = std::max(held, given - files.written());
    return absl::OkStatus();
  };
  const absl::Status status =
      WriteHfWeights(&files, directory, layout, DType::kF32, kHfShardBytes, emit);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_LE(held, kStripBytes + 2 * PlacedWriter::kBlockBytes);

  const auto reader =
      SafetensorsReader::Open(PosixFileSystem(), JoinPath(directory, kHfWeightsFileName));
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
    std::vector<float> values(static_cast<size_t>(tensor.elements));
    ASSERT_TRUE((*reader)->Read(tensor, 0, values.data(), tensor.bytes()).ok());
    int64_t wrong = 0;
    for (int64_t i = 0; i < tensor.elements; ++i) {
      wrong += values[static_cast<size_t>(i)] != TestValue(tensor.name, i);
    }
    EXPECT_EQ(wrong, 0) << tensor.name;
  }
}

TEST(HfWriterTest, ATensorThatIsNotGivenWholeIsAnError) {
  const ModelLayout layout = BuildModelLayout(SmallConfig("llama", false));
  // Of the head, which has 88: the last element, or all, so that its file is not even begun.
  for (const int64_t withheld : {1, 88}) {
    const auto emit = [&](int, const TensorSpec& tensor, ElementRange, TensorSink sink) {
      const std::vector<float> values(static_cast<size_t>(tensor.elements), 1.0f);
      const int64_t given = tensor.elements - (tensor.name == kHeadTensorName ? withheld : 0);
      return sink(values.data(), given * int64_t{sizeof(float)});
    };
    const absl::Status status = WriteHfWeights(PosixFileSystem(), FreshDirectory("out"), layout,
                                               DType::kF32, /*shard_bytes=*/1, emit);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("model-00021-of-00021.safetensors: "),
                               testing::HasSubstr("bytes were not written")));
    EXPECT_EQ(std::string(status.message()).find(": 4 bytes") != std::string::npos, withheld == 1);
  }
}

absl::Status Replace(const std::string& directory, const std::string& content) {
  return ReplaceDirectory(PosixFileSystem(), directory, [&](const std::string& temporary) {
    return WriteFileSynced(PosixFileSystem(), JoinPath(temporary, kConfigFileName), content);
  });
}

std::string ContentOf(const std::string& directory) {
  return ReadWholeFile(PosixFileSystem(), JoinPath(directory, kConfigFileName), 1 << 20)
      .value_or("none");
}

// Both would write the files of one temporary directory.
TEST(ReplaceDirectoryTest, OneWritesADirectoryAtATime) {
  const std::string parent = FreshDirectory("parent"), out = parent + "/out";
  const absl::Status status =
      ReplaceDirectory(PosixFileSystem(), out, [&](const std::string& temporary) {
        // Refused again and again: a refusal does not take the lock away.
        for (int again = 0; again < 2; ++again) {
          const absl::Status second = Replace(out, "second");
          EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition) << second;
          EXPECT_THAT(std::string(second.message()), testing::HasSubstr("another process"));
        }
        const absl::Status beside = Replace(parent + "/other", "beside");
        EXPECT_TRUE(beside.ok()) << beside;
        return WriteFileSynced(PosixFileSystem(), JoinPath(temporary, kConfigFileName), "first");
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ContentOf(out), "first");
  EXPECT_EQ(ContentOf(parent + "/other"), "beside");
  // After an error too.
  EXPECT_EQ(ReplaceDirectory(PosixFileSystem(), out,
                             [](const std::string&) { return absl::DataLossError("damaged"); }),
            absl::DataLossError("damaged"));
  ASSERT_TRUE(Replace(out, "third").ok());
  EXPECT_EQ(ContentOf(out), "third");
  EXPECT_THAT(*PosixFileSystem()->ListDirectory(parent), testing::ElementsAre("other", "out"));
}

// The new one has its name, and is all that was asked for. Before the next one is made, which may
// take days, the user is told.
TEST(ReplaceDirectoryTest, APreviousOneThatCannotBeRemovedFailsTheNextCallAndNotThisOne) {
  const std::string out = FreshDirectory("parent") + "/out";
  ProtectingFileSystem files(".export-previous");
  int writes = 0;
  const auto replace = [&](const std::string& content) {
    return ReplaceDirectory(&files, out, [&](const std::string& temporary) {
      ++writes;
      return WriteFileSynced(&files, JoinPath(temporary, kConfigFileName), content);
    });
  };
  for (const char* const content : {"first", "second"}) {
    const absl::Status status = replace(content);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(ContentOf(out), "second");
  EXPECT_EQ(ContentOf(out + ".export-previous"), "first");
  const absl::Status refused = replace("third");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("/out.export-previous"));
  EXPECT_EQ(refused, CheckCanReplaceDirectory(&files, out));
  EXPECT_EQ(writes, 2);
  EXPECT_EQ(ContentOf(out), "second");
}

// Shows a directory as one of another disk.
class MountingFileSystem : public WatchedFileSystem {
 public:
  explicit MountingFileSystem(std::string mounted)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        mounted_(std::move(mounted)) {}
  absl::StatusOr<FileInfo> Examine(const std::string& path) override {
    absl::StatusOr<FileInfo> info = WatchedFileSystem::Examine(path);
    if (info.ok() && path == mounted_) ++info->device;
    return info;
  }

 private:
  const std::string mounted_;
};

TEST(ReplaceDirectoryTest, WhatCannotBeReplacedIsFoundBeforeAnythingIsWritten) {
  const std::string parent = FreshDirectory("parent"), out = parent + "/out";
  FileSystem* const posix = PosixFileSystem();
  ASSERT_TRUE(posix->CreateDirectories(out).ok());
  const auto check = [&](FileSystem* files, absl::StatusCode code, const std::string& why) {
    const absl::Status refused = CheckCanReplaceDirectory(files, out + "/");
    EXPECT_EQ(refused.code(), code) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(why));
  };
  check(posix, absl::StatusCode::kOk, "");
  ProtectingFileSystem protecting("/parent");
  check(&protecting, absl::StatusCode::kPermissionDenied, "/parent is protected");
  MountingFileSystem mounting(*posix->RealPath(out));
  check(&mounting, absl::StatusCode::kFailedPrecondition, "/out is a mount point");
  for (const std::string name : {"/out.export-tmp", "/out.export-previous"}) {
    ASSERT_TRUE(posix->CreateDirectories(parent + name + "/mine").ok());
    check(posix, absl::StatusCode::kFailedPrecondition, name + " is in the way");
    ASSERT_TRUE(posix->RemoveTree(parent + name).ok());
  }
  EXPECT_THAT(*posix->ListDirectory(parent), testing::ElementsAre("out"));
}

// Names that users give to copies of a model.
TEST(ReplaceDirectoryTest, ModelsOfUsersBesideTheDirectoryStay) {
  const std::string out = FreshDirectory("parent") + "/out";
  ASSERT_TRUE(Replace(out + ".previous", "my previous one").ok());
  ASSERT_TRUE(Replace(out + ".tmp", "my own").ok());
  for (int again = 0; again < 2; ++again) {
    const absl::Status status = Replace(out, "new");
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(ContentOf(out), "new");
    EXPECT_EQ(ContentOf(out + ".previous"), "my previous one");
    EXPECT_EQ(ContentOf(out + ".tmp"), "my own");
  }
}

}  // namespace
}  // namespace megatrain
