// Saving and finding checkpoints on a disk that fails, fills, loses power or rots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
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

// Does what a job does when it starts: finds the newest checkpoint and loads it, and goes to an
// older one if it is damaged. Returns its step, -1 if there is none, or the error.
absl::StatusOr<int64_t> Resume(FaultInjectionFileSystem& files,
                               std::vector<DamagedCheckpoint>& damaged) {
  while (true) {
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> found,
                        FindNewestToLoad(kDirectory, &damaged, &files));
    if (!found.has_value()) return -1;
    MT_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpointState(*found, &files));
    const absl::Status loaded = CheckContent(*found, kDType, &files);
    if (loaded.ok()) return state.step;
    if (!IsDamagedCheckpoint(loaded)) return loaded;
    damaged.push_back({state.step, std::string(loaded.message())});
  }
}

// The step that a job would go on from.
int64_t ResumeStep(FaultInjectionFileSystem& files,
                   std::vector<DamagedCheckpoint>* damaged = nullptr) {
  const auto leftovers = RemoveLeftovers(kDirectory, &files);
  EXPECT_TRUE(leftovers.ok()) << leftovers.status();
  std::vector<DamagedCheckpoint> ignored;
  const auto step = Resume(files, damaged == nullptr ? ignored : *damaged);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.value_or(-1);
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
    std::vector<DamagedCheckpoint> damaged;
    const int64_t resumed = ResumeStep(files, &damaged);
    if (saved.ok()) {
      EXPECT_EQ(resumed, step);
    } else {
      EXPECT_TRUE(resumed == step || resumed == before.back()) << resumed;
    }
    EXPECT_TRUE(damaged.empty()) << "no damaged directory has a whole one's name";
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

TEST(CheckpointFaultTest, AFailedSaveKeepsTheCheckpointOfItsStepUnderOneOfTwoNames) {
  FaultInjectionFileSystem prepared;
  Prepare(prepared, {20});
  // Makes it another than the one to be saved.
  prepared.MutableContent(JoinPath(Path(20), kManifestFile))->append("\n");
  const std::string old = *prepared.MutableContent(JoinPath(Path(20), kManifestFile));
  bool reached_end = false;
  for (int64_t n = 0; !reached_end; ++n) {
    FaultInjectionFileSystem files;
    files.CopyFrom(prepared);
    files.FailAfter(n, Fault::kIoError);
    const auto saved = SaveCheckpoint(kDirectory, 20, kDType, kConfig, &files, 1);
    reached_end = !files.fault_happened();
    if (saved.ok()) continue;
    bool kept = false;
    for (const std::string& name : {Path(20), Path(20) + ".replaced"}) {
      const std::string* const manifest = files.MutableContent(JoinPath(name, kManifestFile));
      kept |= manifest != nullptr && *manifest == old;
    }
    EXPECT_TRUE(kept) << "operation " << n << ": " << saved.status();
  }
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
    for (const bool in_header : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, in_header ? ", header" : ""));
      FaultInjectionFileSystem files;
      Prepare(files, {10, 20});
      std::string* content = files.MutableContent(JoinPath(Path(20), name));
      ASSERT_NE(content, nullptr);
      // A file of tensors begins with the size of its header, 8 bytes, and the header.
      (*content)[in_header ? std::min<size_t>(9, content->size() - 1) : content->size() / 2] ^=
          0x10;
      const absl::Status status = VerifyCheckpoint(Path(20), &files);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), HasSubstr(JoinPath(Path(20), name)));
      std::vector<DamagedCheckpoint> damaged;
      EXPECT_EQ(ResumeStep(files, &damaged), 10);
      ASSERT_EQ(damaged.size(), 1u);
      EXPECT_EQ(damaged[0].step, 20);
      EXPECT_THAT(damaged[0].what, HasSubstr(JoinPath(Path(20), name)));
      // Training on from 10 comes to 20 again and puts a good one in its place.
      ASSERT_TRUE(SaveCheckpoint(kDirectory, 20, kDType, kConfig, &files).ok());
      EXPECT_EQ(ResumeStep(files), 20);
    }
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
      std::vector<DamagedCheckpoint> damaged;
      EXPECT_EQ(ResumeStep(disk, &damaged), 10);
      EXPECT_EQ(damaged.size(), 1u);
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
  const absl::Status status = LoadTile(Path(10), TinyLayout(), 1, tiles.tile(1), &files);
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
  ASSERT_TRUE((*writer)->WriteTile(0, {tiles.tile(0)}).ok());
  files.FailAfter(1, Fault::kNoSpace);
  // An error of writing may be returned by a later call.
  for (int i = 1; i < tiles.size(); ++i) (*writer)->WriteTile(i, {tiles.tile(i)}).IgnoreError();
  EXPECT_EQ((*writer)->Finish(Retention()).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*writer)->WriteTile(2, {tiles.tile(2)}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*writer)->Finish(Retention()).status().code(), absl::StatusCode::kResourceExhausted);
  writer->reset();
  EXPECT_FALSE(files.FileExists(absl::StrCat(Path(20), ".tmp")));
  EXPECT_EQ(ResumeStep(files), 10);
}

TEST(CheckpointFaultTest, AFailedSaveGivesItsRoomBackAtOnce) {
  FaultInjectionFileSystem files;
  Prepare(files, {10});
  files.set_capacity_bytes(0);
  const int64_t used = -*files.FreeDiskBytes(kDirectory);
  files.set_capacity_bytes(2 * used + (int64_t{1} << 20));
  const TileSet tiles(TinyLayout(), kDType);
  auto writer = CheckpointWriter::Begin(kDirectory, TinyLayout(),
                                        MakeState(TinyLayout(), kDType, 20), kConfig, &files);
  ASSERT_TRUE(writer.ok()) << writer.status();
  files.set_capacity_bytes(used);
  absl::Status written;
  for (int i = 0; i < tiles.size() && written.ok(); ++i) {
    written = (*writer)->WriteTile(i, {tiles.tile(i)});
  }
  EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
  EXPECT_FALSE(files.FileExists(absl::StrCat(Path(20), ".tmp")));
  EXPECT_EQ(*files.FreeDiskBytes(kDirectory), 0);
}

// An I/O error, or no descriptor left, at every operation of the search: the run ends with it, or
// goes on from the newest checkpoint; it never takes an older one.
TEST(CheckpointFaultTest, WhatCannotBeReadIsNotTakenForDamaged) {
  FaultInjectionFileSystem prepared;
  Prepare(prepared, {10, 20});
  int64_t errors = 0;
  bool reached_end = false;
  for (int64_t n = 0; !reached_end; ++n) {
    SCOPED_TRACE(absl::StrCat("operation ", n));
    FaultInjectionFileSystem files;
    files.CopyFrom(prepared);
    files.FailAfter(n, Fault::kIoError);
    std::vector<DamagedCheckpoint> damaged;
    const auto step = Resume(files, damaged);
    reached_end = !files.fault_happened();
    EXPECT_TRUE(damaged.empty());
    EXPECT_EQ(step.ok(), reached_end);
    if (step.ok()) {
      EXPECT_EQ(*step, 20);
    } else {
      EXPECT_EQ(step.status().code(), absl::StatusCode::kInternal);
      ++errors;
    }
  }
  EXPECT_GT(errors, 2 * 2 * TinyLayout().tile_count()) << "each file is opened and read";
}

// A run that went on from step 10 saves step 20 and discards what is newer than 10.
absl::Status SaveAndDiscard(FaultInjectionFileSystem& files) {
  TileSet tiles(TinyLayout(), kDType);
  tiles.Fill(20);
  CheckpointState state = MakeState(TinyLayout(), kDType, 20);
  state.run = "the other course";
  auto writer = CheckpointWriter::Begin(kDirectory, TinyLayout(), state, kConfig, &files);
  if (!writer.ok()) return writer.status();
  for (int i = 0; i < tiles.size(); ++i) {
    const absl::Status written = (*writer)->WriteTile(i, {tiles.tile(i)});
    if (!written.ok()) return written;
  }
  Retention retention;
  retention.discard = {40, 30, 20};
  return (*writer)->Finish(retention).status();
}

TEST(CheckpointFaultTest, DiscardedCheckpointsGoWithTheNewOneOrNotAtAll) {
  FaultInjectionFileSystem prepared;
  Prepare(prepared, {10, 20, 30, 40});
  const std::string other = "the other course";
  const std::vector<std::pair<Fault, Loss>> cases = {{Fault::kIoError, Loss::kNothing},
                                                     {Fault::kPowerCut, Loss::kDataAndNames},
                                                     {Fault::kPowerCut, Loss::kNothing}};
  for (const auto& [fault, loss] : cases) {
    bool reached_end = false;
    for (int64_t n = 0; !reached_end; ++n) {
      SCOPED_TRACE(absl::StrCat("operation ", n));
      FaultInjectionFileSystem files;
      files.CopyFrom(prepared);
      files.FailAfter(n, fault);
      const absl::Status saved = SaveAndDiscard(files);
      reached_end = !files.fault_happened();
      fault == Fault::kPowerCut ? files.Restart(loss) : files.FailAfter(-1, Fault::kNone);
      const int64_t resumed = ResumeStep(files);
      const auto steps = ListSteps(kDirectory, &files);
      ASSERT_TRUE(steps.ok());
      const bool is_new = ReadCheckpointState(Path(20), &files)->run == other;
      EXPECT_TRUE(is_new || !saved.ok()) << saved;
      EXPECT_EQ(resumed, is_new ? 20 : 40);
      EXPECT_EQ(*steps,
                is_new ? (std::vector<int64_t>{20, 10}) : (std::vector<int64_t>{40, 30, 20, 10}));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// The process dies while it gives names back.
TEST(CheckpointFaultTest, NamesAreGivenBackAlthoughThePowerGoesAgain) {
  FaultInjectionFileSystem prepared;
  Prepare(prepared, {10, 20, 30});
  for (const int64_t step : {20, 30}) {
    ASSERT_TRUE(
        prepared.Rename(Path(step), JoinPath(kDirectory, ReplacedDirectoryName(step, 20))).ok());
  }
  prepared.SyncAll();
  bool reached_end = false;
  for (int64_t n = 0; !reached_end; ++n) {
    SCOPED_TRACE(absl::StrCat("operation ", n));
    FaultInjectionFileSystem files;
    files.CopyFrom(prepared);
    files.FailAfter(n, Fault::kPowerCut);
    RemoveLeftovers(kDirectory, &files).IgnoreError();
    reached_end = !files.fault_happened();
    files.Restart(Loss::kNothing);
    EXPECT_EQ(ResumeStep(files), 30);
    EXPECT_EQ(*ListSteps(kDirectory, &files), (std::vector<int64_t>{30, 20, 10}));
  }
}

}  // namespace
}  // namespace megatrain
