#include "engine/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/fault/fault_injection_file_system.h"
#include "tests/support/refusing_file_system.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kConfig[] = "/models/tiny";

TEST(CheckpointDirectoryTest, StepNames) {
  EXPECT_EQ(StepDirectoryName(0), "step-00000000");
  EXPECT_EQ(StepDirectoryName(100), "step-00000100");
  EXPECT_EQ(StepDirectoryName(123456789012), "step-123456789012");
  EXPECT_EQ(ParseStepDirectoryName("step-00000100"), 100);
  EXPECT_EQ(ParseStepDirectoryName("step-123456789"), 123456789);
  for (const char* name : {"step-100", "step-000000100", "step-+0000100", "step- 0000100",
                           "step--0000100", "step-0000010x", "step-00000100.tmp",
                           "step-99999999999999999999", "Step-00000100", "", "step-"}) {
    EXPECT_EQ(ParseStepDirectoryName(name), std::nullopt) << name;
  }
}

TEST(CheckpointDirectoryTest, ListsNumericallyAndIgnoresWhatIsForeign) {
  FaultInjectionFileSystem files;
  for (const char* name : {"step-00000100", "step-00000009", "step-123456789", "step-00000200.tmp",
                           "step-00000300.replaced", "step-7", "mine"}) {
    files.WriteFile(std::string("/c/") + name + "/manifest.json", "");
  }
  files.WriteFile("/c/step-00000400", "a file");
  files.WriteFile("/c/step-00000500/notes.txt", "no manifest");
  const auto found = ListCheckpoints("/c", &files);
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(*found, ElementsAre("/c/step-123456789", "/c/step-00000100", "/c/step-00000009"));
  EXPECT_THAT(*ListCheckpoints("/nothing", &files), IsEmpty());
}

TEST(CheckpointDirectoryTest, FindsNothingInAMissingDirectory) {
  std::vector<DamagedCheckpoint> damaged;
  const auto found = FindNewestToLoad("/no/such/directory", &damaged);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
  EXPECT_TRUE(damaged.empty());
}

TEST(CheckpointDirectoryTest, ASpecValueIsOfTheNewestManifestThatCanBeRead) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : {10, 20}) {
    ASSERT_TRUE(SaveCheckpoint("/c", step, DType::kF32, kConfig, &files, 9).ok());
  }
  files.MutableContent("/c/step-00000020/manifest.json")->pop_back();
  EXPECT_EQ(NewestSpecValue("/c", "optimizer.learning_rate", &files), "0.0003");
  EXPECT_EQ(NewestSpecValue("/c", "optimizer.none", &files), "");
  EXPECT_EQ(NewestSpecValue("/nothing", "optimizer.learning_rate", &files), "");
}

TEST(CheckpointDirectoryTest, AKeyThatTheNewestDoesNotHaveIsNotTakenFromAnOlderOne) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  const TileSet tiles(TinyLayout(), DType::kF32);
  CheckpointState state = MakeState(TinyLayout(), DType::kF32, 10);
  state.spec["data.template_date"] = "2026-01-31";
  auto writer = CheckpointWriter::Begin("/c", TinyLayout(), state, kConfig, &files);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int i = 0; i < tiles.size(); ++i) {
    ASSERT_TRUE((*writer)->WriteTile(i, {tiles.tile(i)}).ok());
  }
  ASSERT_TRUE((*writer)->Finish(Retention()).ok());
  EXPECT_EQ(NewestSpecValue("/c", "data.template_date", &files), "2026-01-31");
  ASSERT_TRUE(SaveCheckpoint("/c", 20, DType::kF32, kConfig, &files, 9).ok());
  EXPECT_EQ(NewestSpecValue("/c", "data.template_date", &files), "");
}

TEST(CheckpointDirectoryTest, LeftoversAreRemovedAndForeignOnesAreNot) {
  FaultInjectionFileSystem files;
  files.WriteFile("/c/step-00000200.tmp/model-00001-of-00004.safetensors", "half");
  files.WriteFile("/c/step-00000200.tmp/additional_chat_templates/rag.jinja", "copied");
  files.WriteFile("/c/step-00000300.tmp/folder/of/mine", "precious");
  files.WriteFile("/c/export.tmp/model.safetensors", "precious");
  files.WriteFile("/c/step-00000100.replaced/manifest.json", "whole");
  files.WriteFile("/c/step-00000400.replaced/manifest.json", "old");
  files.WriteFile("/c/step-00000400/manifest.json", "new");
  const auto lines = RemoveLeftovers("/c", &files);
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(lines->size(), 4u);
  EXPECT_FALSE(files.FileExists("/c/step-00000200.tmp"));
  EXPECT_TRUE(files.FileExists("/c/step-00000300.tmp/folder/of/mine"));
  EXPECT_TRUE(files.FileExists("/c/export.tmp/model.safetensors"));
  EXPECT_EQ(*files.MutableContent("/c/step-00000100/manifest.json"), "whole");
  EXPECT_EQ(*files.MutableContent("/c/step-00000400/manifest.json"), "new");
  EXPECT_FALSE(files.FileExists("/c/step-00000400.replaced"));
  EXPECT_THAT(*RemoveLeftovers("/nothing", &files), IsEmpty());
}

TEST(CheckpointDirectoryTest, WhatWasDiscardedComesBackUnlessTheNewOneHasItsName) {
  for (const bool has_name : {false, true}) {
    FaultInjectionFileSystem files;
    files.WriteFile("/c/step-00000100/manifest.json", "start");
    files.WriteFile("/c/step-00000150.replaced/manifest.json", "old");
    files.WriteFile("/c/step-00000300.replaced-by-step-00000150/manifest.json", "old");
    files.WriteFile(has_name ? "/c/step-00000150/manifest.json" : "/c/step-00000150.tmp/x", "new");
    ASSERT_TRUE(RemoveLeftovers("/c", &files).ok());
    if (has_name) {
      EXPECT_THAT(*files.ListDirectory("/c"), ElementsAre("step-00000100", "step-00000150"));
      EXPECT_EQ(*files.MutableContent("/c/step-00000150/manifest.json"), "new");
    } else {
      EXPECT_THAT(*files.ListDirectory("/c"),
                  ElementsAre("step-00000100", "step-00000150", "step-00000300"));
      EXPECT_EQ(*files.MutableContent("/c/step-00000150/manifest.json"), "old");
    }
  }
}

TEST(CheckpointDirectoryTest, WhatCannotBeRemovedIsLeftAloneAndNamed) {
  const std::string check = "/c/shared-0123456789abcdef0123456789abcdef-";
  FaultInjectionFileSystem files;
  files.WriteFile("/c/step-00000003.tmp/x", "protected");
  files.WriteFile("/c/step-00000005.tmp/x", "half");
  files.WriteFile(check + "0", "");
  files.WriteFile(check + "1", "");
  for (const std::string& path : {check + "0", std::string("/c/step-00000003.tmp")}) {
    ProtectingFileSystem cancelled(path, &files, absl::CancelledError("ends"));
    EXPECT_EQ(RemoveLeftovers("/c", &cancelled).status().code(), absl::StatusCode::kCancelled);
  }
  ProtectingFileSystem protecting("/c/step-00000003.tmp", &files);
  const auto lines = RemoveLeftovers("/c", &protecting);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(*lines,
              ::testing::Contains("left alone: /c/step-00000003.tmp is protected").Times(1));
  EXPECT_THAT(*files.ListDirectory("/c"), ElementsAre("step-00000003.tmp"));
  files.WriteFile(check + "2", "");
  ProtectingFileSystem checks(check, &files);
  EXPECT_THAT(*RemoveLeftovers("/c", &checks),
              ElementsAre(HasSubstr("left alone: " + check + "2"), HasSubstr("removed ")));
}

// Its successor may be removed before it.
TEST(CheckpointDirectoryTest, WhatWasReplacedAndCannotBeRemovedDoesNotComeBack) {
  for (const std::string aside :
       {"/c/step-00000300.replaced-by-step-00000150", "/c/step-00000150.replaced"}) {
    FaultInjectionFileSystem files;
    files.WriteFile(aside + "/manifest.json", "old");
    files.WriteFile("/c/step-00000150/manifest.json", "new");
    const std::string unfinished = aside.substr(0, aside.find('.')) + kUnfinishedSuffix;
    ProtectingFileSystem protecting(aside.substr(0, aside.find('.')) + ".", &files);
    const auto lines = RemoveLeftovers("/c", &protecting);
    ASSERT_TRUE(lines.ok()) << lines.status();
    EXPECT_THAT(*lines, ElementsAre(HasSubstr("left alone: " + unfinished)));
    ASSERT_TRUE(files.RemoveTree("/c/step-00000150").ok());
    ASSERT_TRUE(RemoveLeftovers("/c", &protecting).ok());
    EXPECT_THAT(*ListSteps("/c", &files), IsEmpty());
    EXPECT_TRUE(files.FileExists(unfinished + "/manifest.json"));
    ASSERT_TRUE(RemoveLeftovers("/c", &files).ok());
    EXPECT_THAT(*files.ListDirectory("/c"), IsEmpty());
  }
}

TEST(CheckpointDirectoryTest, FilesAreKnownByTheirNamesIfTheManifestIsDamaged) {
  FaultInjectionFileSystem files;
  const std::string path = "/c/step-00000010";
  for (const char* name :
       {"manifest.json", "config.json", "model-00001-of-00002.safetensors",
        "optimizer-00001-of-00002.safetensors", "model-00002-of-00002.safetensors.part",
        "optimizer-00002-of-00002.safetensors.part"}) {
    files.WriteFile(JoinPath(path, name), "damaged");
  }
  const absl::Status ours = CheckHoldsOnlyCheckpointFiles(path, &files);
  EXPECT_TRUE(ours.ok()) << ours;
  files.WriteFile(JoinPath(path, "notes.part"), "mine");
  EXPECT_EQ(CheckHoldsOnlyCheckpointFiles(path, &files).code(),
            absl::StatusCode::kFailedPrecondition);
}

Retention Keep(int64_t keep, std::vector<int64_t> damaged = {}) {
  Retention retention;
  retention.keep = keep;
  retention.damaged = std::move(damaged);
  return retention;
}

TEST(RetentionTest, KeepsTheNewestAndAlwaysTheVerifiedOne) {
  EXPECT_THAT(StepsToRemove({10, 20, 30, 40}, 40, Keep(2)), ElementsAre(20, 10));
  EXPECT_THAT(StepsToRemove({10, 20, 30, 40}, 40, Keep(1)), ElementsAre(30, 20, 10));
  EXPECT_THAT(StepsToRemove({10, 20, 30, 40}, 40, Keep(0)), ElementsAre(30, 20, 10));
  EXPECT_THAT(StepsToRemove({10, 20, 30, 40}, 40, Keep(-5)), ElementsAre(30, 20, 10));
  EXPECT_THAT(StepsToRemove({10}, 10, Keep(5)), IsEmpty());
  EXPECT_THAT(StepsToRemove({}, 10, Keep(1)), IsEmpty());
}

TEST(RetentionTest, ANewerCheckpointOfAnotherVersionIsListedAndAnErrorReturned) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : {10, 20}) {
    ASSERT_TRUE(SaveCheckpoint("/c", step, DType::kF32, kConfig, &files, 9).ok());
  }
  std::string& text = *files.MutableContent("/c/step-00000020/manifest.json");
  const size_t version = text.find("\"version\": 1");
  ASSERT_NE(version, std::string::npos);
  text.replace(version, 12, "\"version\": 9");
  // The checksum is followed by a quote and a brace, each with a line's end.
  text.replace(text.size() - 36, 32, HashBytes(text.substr(0, text.rfind(",\n"))));
  std::vector<std::string> notes;
  const auto newer = ListNewer("/c", 10, Retention(), &notes, &files);
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_THAT(*newer, ElementsAre(20));
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_THAT(*ListNewer("/c", 20, Retention(), &notes, &files), IsEmpty());
  // A run does not go on from an older one behind the user's back.
  std::vector<DamagedCheckpoint> damaged;
  const auto found = FindNewestToLoad("/c", &damaged, &files);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << found.status();
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("/c/step-00000020"));
  EXPECT_TRUE(damaged.empty());
  // The list can be read, the manifest cannot.
  files.FailAfter(-1, FaultInjectionFileSystem::Fault::kNone);
  ASSERT_TRUE(ListSteps("/c", &files).ok());
  files.FailAfter(files.operations(), FaultInjectionFileSystem::Fault::kIoError);
  EXPECT_EQ(ListNewer("/c", 10, Retention(), &notes, &files).status().code(),
            absl::StatusCode::kInternal);
}

TEST(RetentionTest, LaterStepsStayAndDamagedOnesAreNotCounted) {
  EXPECT_THAT(StepsToRemove({10, 20, 25, 40}, 25, Keep(1)), ElementsAre(20, 10));
  EXPECT_THAT(StepsToRemove({10, 20, 25, 40}, 25, Keep(3)), IsEmpty());
  // The run fell back from 40 to 20, has saved 25 and now 45.
  EXPECT_THAT(StepsToRemove({20, 25, 40}, 25, Keep(2, {40})), IsEmpty());
  EXPECT_THAT(StepsToRemove({20, 25, 40, 45}, 45, Keep(2, {40})), ElementsAre(40, 20));
}

TEST(RetentionTest, TheBestStaysAndDoesNotCount) {
  const auto removed = [](int64_t best, std::vector<int64_t> damaged = {}) {
    Retention retention = Keep(2, std::move(damaged));
    retention.best = best;
    return StepsToRemove({10, 20, 30, 40, 50}, 50, retention);
  };
  EXPECT_THAT(removed(0), ElementsAre(30, 20, 10));
  EXPECT_THAT(removed(20), ElementsAre(30, 10));
  EXPECT_THAT(removed(40), ElementsAre(20, 10));
  EXPECT_THAT(removed(50), ElementsAre(30, 20, 10));
  EXPECT_THAT(removed(40, {30}), ElementsAre(30, 10));
}

TEST(RetentionTest, WhatIsDamagedIsNotAmongTheNewer) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : {10, 20, 30, 40}) {
    ASSERT_TRUE(SaveCheckpoint("/c", step, DType::kF32, kConfig, &files, 9).ok());
  }
  files.MutableContent("/c/step-00000030/manifest.json")->pop_back();
  files.WriteFile("/c/step-00000050/notes.txt", "no manifest");
  std::vector<std::string> notes;
  const auto newer = ListNewer("/c", 10, Keep(1, {20}), &notes, &files);
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_THAT(*newer, ElementsAre(40));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("/c/step-00000050"), HasSubstr("/c/step-00000030")));
}

TEST(RetentionTest, ADirectoryThatCannotBeListedIsTold) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : {10, 20}) {
    ASSERT_TRUE(SaveCheckpoint("/c", step, DType::kF32, kConfig, &files, 9).ok());
  }
  std::vector<std::string> notes;
  files.FailAfter(0, FaultInjectionFileSystem::Fault::kIoError);
  PruneCheckpoints("/c", MakeState(TinyLayout(), DType::kF32, 20), Keep(1), &notes, &files);
  EXPECT_EQ(notes.size(), 1u);
  files.FailAfter(-1, FaultInjectionFileSystem::Fault::kNone);
  EXPECT_THAT(*ListSteps("/c", &files), ElementsAre(20, 10));
}

TEST(RetentionTest, ACheckpointOfAnotherRunIsLeftAlone) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  CheckpointState verified = MakeState(TinyLayout(), DType::kF32, 50);
  verified.run = RunName(verified);  // as of a run that a version before it had begun
  for (const int64_t step : {10, 20, 30, 40}) {
    TileSet tiles(TinyLayout(), DType::kF32);
    CheckpointState state = MakeState(TinyLayout(), DType::kF32, step);
    if (step == 20) state.run = NewRunName();
    if (step == 30) state.spec["optimizer.learning_rate"] = "0.5";
    auto writer = CheckpointWriter::Begin("/c", TinyLayout(), state, kConfig, &files);
    ASSERT_TRUE(writer.ok());
    for (int i = 0; i < tiles.size(); ++i) {
      ASSERT_TRUE((*writer)->WriteTile(i, {tiles.tile(i)}).ok());
    }
    ASSERT_TRUE((*writer)->Finish(Keep(9)).ok());
  }
  files.WriteFile("/c/step-00000045/manifest.json", "damaged");
  std::vector<std::string> notes;
  PruneCheckpoints("/c", verified, Keep(1), &notes, &files);
  EXPECT_EQ(*ListSteps("/c", &files), (std::vector<int64_t>{45, 30, 20}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("/c/step-00000045"));
  EXPECT_NE(NewRunName(), NewRunName());
}

TEST(RetentionTest, ADirectoryWithForeignFilesIsLeftAloneAndNamed) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : {10, 20, 30}) {
    ASSERT_TRUE(SaveCheckpoint("/c", step, DType::kF32, kConfig, &files, 9).ok());
  }
  files.WriteFile("/c/step-00000010/notes.txt", "mine");
  files.WriteFile("/c/other/file", "mine");
  std::vector<std::string> notes;
  PruneCheckpoints("/c", MakeState(TinyLayout(), DType::kF32, 30), Keep(1), &notes, &files);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("/c/step-00000010 holds notes.txt"));
  EXPECT_THAT(*files.ListDirectory("/c"), ElementsAre("other", "step-00000010", "step-00000030"));
}

TEST(RetentionTest, AProtectedCheckpointKeepsItsNameAndLaterOnesAreSaved) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  ProtectingFileSystem protecting("/c/step-00000003", &files);
  for (const int64_t step : {3, 6, 9}) {
    const auto saved = SaveCheckpoint("/c", step, DType::kF32, kConfig, &protecting, 1);
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  EXPECT_THAT(*files.ListDirectory("/c"), ElementsAre("step-00000003", "step-00000009"));
  EXPECT_TRUE(VerifyCheckpoint("/c/step-00000003", &files).ok());
  std::vector<std::string> notes;
  PruneCheckpoints("/c", MakeState(TinyLayout(), DType::kF32, 9), Keep(1), &notes, &protecting);
  EXPECT_THAT(notes, ElementsAre("/c/step-00000003 is protected"));
}

TEST(RetentionTest, ASaveIsRefusedWhereItsOwnLeftoverCannotBeRemoved) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  files.WriteFile("/c/step-00000006.tmp/x", "half");
  ProtectingFileSystem protecting("/c/step-00000006.tmp", &files);
  const auto refused = SaveCheckpoint("/c", 6, DType::kF32, kConfig, &protecting, 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("/c/step-00000006.tmp is in the"));
  const auto saved = SaveCheckpoint("/c", 9, DType::kF32, kConfig, &protecting, 1);
  EXPECT_TRUE(saved.ok()) << saved.status();
}

TEST(RetentionTest, ADiscardedCheckpointWithForeignFilesStays) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  for (const int64_t step : {10, 30}) {
    ASSERT_TRUE(SaveCheckpoint("/c", step, DType::kF32, kConfig, &files, 9).ok());
  }
  files.WriteFile("/c/step-00000030/notes.txt", "mine");
  const TileSet tiles(TinyLayout(), DType::kF32);
  auto writer = CheckpointWriter::Begin("/c", TinyLayout(),
                                        MakeState(TinyLayout(), DType::kF32, 20), kConfig, &files);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int i = 0; i < tiles.size(); ++i) {
    ASSERT_TRUE((*writer)->WriteTile(i, {tiles.tile(i)}).ok());
  }
  Retention retention = Keep(9);
  retention.discard = {30};
  const absl::Status refused = (*writer)->Finish(retention).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/c/step-00000030 holds notes.txt"));
  EXPECT_TRUE(files.FileExists("/c/step-00000030/notes.txt"));
}

TEST(RetentionTest, ADirectoryThatOnlyHasACheckpointsNameIsNeitherRemovedNorReplaced) {
  FaultInjectionFileSystem files;
  WriteConfigDirectory(&files, kConfig);
  files.WriteFile("/c/step-00000010/thesis.tex", "mine");
  ASSERT_TRUE(SaveCheckpoint("/c", 20, DType::kF32, kConfig, &files, 1).ok());
  EXPECT_TRUE(files.FileExists("/c/step-00000010/thesis.tex"));
  const auto saved = SaveCheckpoint("/c", 10, DType::kF32, kConfig, &files, 1);
  EXPECT_EQ(saved.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr("thesis.tex"));
  EXPECT_TRUE(files.FileExists("/c/step-00000010/thesis.tex"));
}

}  // namespace
}  // namespace megatrain
