// Saving and finding checkpoints on a disk that fails, fills, loses power or rots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/fault/fault_injection_file_system.h"

namespace megatrain {
namespace {

using Fault = FaultInjectionFileSystem::Fault;
using Loss = FaultInjectionFileSystem::Loss;
using ::testing::HasSubstr;

constexpr char kDirectory[] = "/jobs/a/checkpoints";
constexpr char kConfig[] = "/models/tiny";
constexpr DType kDType = DType::kBF16;

std::string Path(int64_t step) { return JoinPath(kDirectory, StepDirectoryName(step)); }

// A disk with the model's configuration and good checkpoints of `steps`.
void Prepare(FaultInjectionFileSystem& files, const std::vector<int64_t>& steps) {
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : steps) {
    const auto saved = SaveCheckpoint(kDirectory, step, kDType, kConfig, &files, 9);
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  files.SyncAll();
}

std::vector<std::string> Names(FaultInjectionFileSystem& files, const std::string& path) {
  return files.ListDirectory(path).value_or(std::vector<std::string>());
}

// Of every file that a checkpoint has.
std::vector<std::string> CheckpointFileNames() {
  FaultInjectionFileSystem files;
  Prepare(files, {10});
  return Names(files, Path(10));
}

// What a job does when it starts: the step that it would go on from, after it has loaded it.
int64_t ResumeStep(FaultInjectionFileSystem& files, std::vector<std::string>* skipped = nullptr) {
  const auto leftovers = RemoveLeftovers(kDirectory, &files);
  EXPECT_TRUE(leftovers.ok()) << leftovers.status();
  const auto found = FindNewestVerified(kDirectory, skipped, &files);
  EXPECT_TRUE(found.ok()) << found.status();
  if (!found.ok() || !found->has_value()) return -1;
  const absl::Status content = CheckContent(**found, kDType, &files);
  EXPECT_TRUE(content.ok()) << content;
  return ReadCheckpointState(**found, &files)->step;
}

// Saves step 20 beside 10 with a fault at every operation in turn.
void TryEveryOperation(Fault fault, Loss loss, const std::vector<int64_t>& before, int64_t step) {
  FaultInjectionFileSystem prepared;
  Prepare(prepared, before);
  bool reached_end = false;
  for (int64_t n = 0; !reached_end; ++n) {
    SCOPED_TRACE(absl::StrCat("operation ", n));
    FaultInjectionFileSystem files;
    files.CopyFrom(prepared);
    files.FailAfter(n, fault);
    const auto saved = SaveCheckpoint(kDirectory, step, kDType, kConfig, &files, 1);
    reached_end = !files.fault_happened();
    EXPECT_TRUE(saved.ok() || !reached_end) << saved.status();
    if (fault == Fault::kPowerCut) {
      files.Restart(loss);
    } else {
      files.FailAfter(-1, Fault::kNone);
      // An error that was reported has not left an unfinished directory behind, unless it was in
      // the removing itself.
      int unfinished = 0;
      for (const std::string& name : Names(files, kDirectory)) {
        unfinished += absl::EndsWith(name, ".tmp") ? 1 : 0;
      }
      EXPECT_LE(unfinished, saved.ok() ? 1 : 0);
    }
    std::vector<std::string> skipped;
    const int64_t resumed = ResumeStep(files, &skipped);
    if (saved.ok()) {
      EXPECT_EQ(resumed, step);
    } else {
      EXPECT_TRUE(resumed == step || resumed == before.back()) << resumed;
    }
    EXPECT_THAT(skipped, ::testing::IsEmpty()) << "no damaged directory has a whole one's name";
    if (n % 4 != 0) continue;  // Tried more seldom: the job can go on.
    const auto next = SaveCheckpoint(kDirectory, step + 10, kDType, kConfig, &files, 1);
    EXPECT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(ResumeStep(files), step + 10);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(CheckpointFaultTest, DiskFullAtEveryOperation) {
  TryEveryOperation(Fault::kNoSpace, Loss::kNothing, {10}, 20);
}
TEST(CheckpointFaultTest, IoErrorAtEveryOperation) {
  TryEveryOperation(Fault::kIoError, Loss::kNothing, {10}, 20);
}
TEST(CheckpointFaultTest, ShortWriteAtEveryOperation) {
  TryEveryOperation(Fault::kShortWrite, Loss::kNothing, {10}, 20);
}
TEST(CheckpointFaultTest, PowerCutAtEveryOperation) {
  for (const Loss loss : {Loss::kDataAndNames, Loss::kData, Loss::kNames, Loss::kNothing}) {
    SCOPED_TRACE(static_cast<int>(loss));
    TryEveryOperation(Fault::kPowerCut, loss, {10}, 20);
  }
}
TEST(CheckpointFaultTest, PowerCutWhileACheckpointOfTheSameStepIsReplaced) {
  for (const Loss loss : {Loss::kDataAndNames, Loss::kData, Loss::kNames, Loss::kNothing}) {
    TryEveryOperation(Fault::kPowerCut, loss, {10, 20}, 20);
  }
}
TEST(CheckpointFaultTest, IoErrorWhileACheckpointOfTheSameStepIsReplaced) {
  TryEveryOperation(Fault::kIoError, Loss::kNothing, {20}, 20);
}

TEST(CheckpointFaultTest, PowerCutAtTheFirstSaveLeavesNothingOrAll) {
  bool reached_end = false;
  for (int64_t n = 0; !reached_end; ++n) {
    FaultInjectionFileSystem files;
    Prepare(files, {});
    files.FailAfter(n, Fault::kPowerCut);
    const auto saved = SaveCheckpoint(kDirectory, 10, kDType, kConfig, &files);
    reached_end = !files.fault_happened();
    files.Restart(Loss::kDataAndNames);
    const int64_t resumed = ResumeStep(files);
    EXPECT_TRUE(saved.ok() ? resumed == 10 : (resumed == 10 || resumed == -1)) << n;
  }
}

TEST(CheckpointFaultTest, AFullDiskIsSeenBeforeAnythingIsWritten) {
  FaultInjectionFileSystem files;
  Prepare(files, {10});
  files.set_capacity_bytes(0);
  const int64_t used = -*files.FreeDiskBytes(kDirectory);
  const int64_t needed = CheckpointWriter::EstimateBytes(TinyLayout(), kDType);
  files.set_capacity_bytes(used + needed - 1);
  const auto saved = SaveCheckpoint(kDirectory, 20, kDType, kConfig, &files);
  EXPECT_EQ(saved.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(saved.status().message()),
              ::testing::AllOf(HasSubstr("a checkpoint needs"), HasSubstr(kDirectory),
                               HasSubstr("checkpoint.directory")));
  EXPECT_EQ(*files.FreeDiskBytes(kDirectory), needed - 1) << "nothing was written";
  EXPECT_EQ(ResumeStep(files), 10);
}

TEST(CheckpointFaultTest, AFlippedBitInAnyFileIsNamedAndTheOlderOneIsUsed) {
  const std::vector<std::string> names = CheckpointFileNames();
  ASSERT_EQ(names.size(), 2u * TinyLayout().tile_count() + 4);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    FaultInjectionFileSystem files;
    Prepare(files, {10, 20});
    std::string* content = files.MutableContent(JoinPath(Path(20), name));
    ASSERT_NE(content, nullptr);
    (*content)[content->size() / 2] ^= 0x10;
    const absl::Status status = VerifyCheckpoint(Path(20), &files);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(JoinPath(Path(20), name)));
    std::vector<std::string> skipped;
    EXPECT_EQ(ResumeStep(files, &skipped), 10);
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_THAT(skipped[0], HasSubstr(JoinPath(Path(20), name)));
    // Training on from 10 comes to 20 again and puts a good one in its place.
    ASSERT_TRUE(SaveCheckpoint(kDirectory, 20, kDType, kConfig, &files).ok());
    EXPECT_EQ(ResumeStep(files), 20);
  }
}

TEST(CheckpointFaultTest, AMissingOrTruncatedFileIsNamed) {
  const std::vector<std::string> names = CheckpointFileNames();
  for (const bool missing : {false, true}) {
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      FaultInjectionFileSystem disk;
      Prepare(disk, {10, 20});
      const std::string path = JoinPath(Path(20), name);
      if (missing) {
        ASSERT_TRUE(disk.RemoveFile(path).ok());
      } else {
        disk.MutableContent(path)->pop_back();
      }
      const absl::Status status = VerifyCheckpoint(Path(20), &disk);
      EXPECT_EQ(status.code(), missing && name == "manifest.json" ? absl::StatusCode::kNotFound
                                                                  : absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), HasSubstr(path));
      std::vector<std::string> skipped;
      EXPECT_EQ(ResumeStep(disk, &skipped), 10);
      EXPECT_EQ(skipped.size(), 1u);
    }
  }
}

TEST(CheckpointFaultTest, ABitThatFlipsBetweenVerifyAndLoadIsFoundInLoading) {
  FaultInjectionFileSystem files;
  Prepare(files, {10});
  std::string* content =
      files.MutableContent(JoinPath(Path(10), "model-00002-of-00004.safetensors"));
  content->back() ^= 1;
  TileSet tiles(TinyLayout(), kDType);
  const absl::Status status = LoadCheckpointTile(Path(10), TinyLayout(), 1, tiles.tile(1), &files);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model-00002-of-00004.safetensors"));
}

TEST(CheckpointFaultTest, AFailedSaveReportsTheFirstErrorForGood) {
  FaultInjectionFileSystem files;
  Prepare(files, {10});
  TileSet tiles(TinyLayout(), kDType);
  tiles.Fill(20);
  auto writer = CheckpointWriter::Begin(kDirectory, TinyLayout(),
                                        MakeState(TinyLayout(), kDType, 20), kConfig, &files);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->WriteTile(0, tiles.tile(0)).ok());
  files.FailAfter(1, Fault::kNoSpace);
  EXPECT_EQ((*writer)->WriteTile(1, tiles.tile(1)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*writer)->WriteTile(2, tiles.tile(2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*writer)->Finish(2).status().code(), absl::StatusCode::kResourceExhausted);
  writer->reset();
  EXPECT_FALSE(files.FileExists(absl::StrCat(Path(20), ".tmp")));
  EXPECT_EQ(ResumeStep(files), 10);
}

}  // namespace
}  // namespace megatrain
