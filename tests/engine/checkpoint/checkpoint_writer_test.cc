// What a CheckpointWriter is told and tells beside the tiles, and what it meets at the end.
#include "engine/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WriterTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteConfigDirectory(files_, config_); }

  // Saves the tiles of step `step` through `files`, and returns the finished writer.
  std::unique_ptr<CheckpointWriter> SaveBy(FileSystem* files, int64_t step,
                                           const Retention& retention = {}) {
    TileSet tiles(TinyLayout(), DType::kBF16);
    tiles.Fill(static_cast<uint64_t>(step));
    auto writer = CheckpointWriter::Begin(
        directory_, TinyLayout(), MakeState(TinyLayout(), DType::kBF16, step), config_, files);
    EXPECT_TRUE(writer.ok()) << writer.status();
    if (!writer.ok()) return nullptr;
    for (int i = 0; i < tiles.size(); ++i) {
      EXPECT_TRUE((*writer)->WriteTile(i, {tiles.tile(i)}).ok());
    }
    if (evaluations_.best_step > 0) (*writer)->SetEvaluations(evaluations_);
    const auto path = (*writer)->Finish(retention);
    EXPECT_TRUE(path.ok()) << path.status();
    return *std::move(writer);
  }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory own_;
  const std::string config_ = own_ / "model", directory_ = own_ / "checkpoints";
  Evaluations evaluations_;  // made while the checkpoint is written, if there is a best one
};

TEST_F(WriterTest, TheEvaluationOfTheStepItselfIsInTheManifest) {
  evaluations_ = {5, 1.5, 0, 4, 1.75};
  ASSERT_NE(SaveBy(files_, 5), nullptr);
  const auto state = ReadCheckpointState(JoinPath(directory_, "step-00000005"));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->evaluations.best_step, 5);
  EXPECT_EQ(state->evaluations.best_loss, 1.5);
  EXPECT_EQ(state->evaluations.kept_step, 4);
  EXPECT_EQ(state->evaluations.kept_loss, 1.75);
}

TEST_F(WriterTest, ADiscardedCheckpointThatIsNotThereIsNoError) {
  ASSERT_NE(SaveBy(files_, 7), nullptr);
  Retention retention;
  retention.discard = {9, 7};
  ASSERT_NE(SaveBy(files_, 5, retention), nullptr);
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("step-00000005"));
}

// A resumed run may save a step again that it was told to discard.
TEST_F(WriterTest, ADiscardedCheckpointOfTheSameStepIsReplaced) {
  ASSERT_NE(SaveBy(files_, 5), nullptr);
  ASSERT_NE(SaveBy(files_, 7), nullptr);
  Retention retention;
  retention.discard = {5, 7};
  ASSERT_NE(SaveBy(files_, 5, retention), nullptr);
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("step-00000005"));
}

// Removes nothing that was moved aside.
class KeepingFileSystem : public WatchedFileSystem {
 public:
  KeepingFileSystem() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::Status RemoveTree(const std::string& path) override {
    if (absl::EndsWith(path, ".replaced")) return absl::InternalError("cannot remove");
    return WatchedFileSystem::RemoveTree(path);
  }
};

TEST_F(WriterTest, AReplacedCheckpointThatCannotBeRemovedIsToldAndRemovedLater) {
  ASSERT_NE(SaveBy(files_, 5), nullptr);
  KeepingFileSystem keeping;
  const auto writer = SaveBy(&keeping, 5);
  ASSERT_NE(writer, nullptr);
  EXPECT_THAT(writer->notes(), ::testing::Contains(HasSubstr("cannot remove")));
  EXPECT_THAT(*files_->ListDirectory(directory_),
              ElementsAre("step-00000005", "step-00000005.replaced"));
  ASSERT_TRUE(RemoveLeftovers(directory_).ok());
  EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("step-00000005"));
  EXPECT_TRUE(VerifyCheckpoint(JoinPath(directory_, "step-00000005")).ok());
}

// A file system that says whether it has direct transfers.
class TransfersFileSystem : public WatchedFileSystem {
 public:
  explicit TransfersFileSystem(bool direct)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }), direct_(direct) {}
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    auto file = WatchedFileSystem::NewBlockFile(path, bytes);
    if (!file.ok()) return file;
    return std::make_unique<Blocks>(*std::move(file), direct_);
  }

 private:
  class Blocks : public BlockFile {
   public:
    Blocks(std::unique_ptr<BlockFile> file, bool direct)
        : file_(std::move(file)), direct_(direct) {}
    absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
      return file_->Write(offset, data, bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }
    bool direct() const override { return direct_; }

   private:
    const std::unique_ptr<BlockFile> file_;
    const bool direct_;
  };
  const bool direct_;
};

TEST_F(WriterTest, ADiskWithoutDirectTransfersIsTold) {
  for (const bool direct : {true, false}) {
    TransfersFileSystem files(direct);
    const auto writer = SaveBy(&files, 5);
    ASSERT_NE(writer, nullptr);
    bool told = false;
    for (const std::string& note : writer->notes()) {
      told |= absl::StrContains(note, "through the page cache");
    }
    EXPECT_EQ(told, !direct);
  }
}

}  // namespace
}  // namespace megatrain
