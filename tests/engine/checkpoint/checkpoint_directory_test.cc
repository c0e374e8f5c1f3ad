#include "engine/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/fault/fault_injection_file_system.h"

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

TEST(RetentionTest, LaterStepsStayAndDamagedOnesAreNotCounted) {
  EXPECT_THAT(StepsToRemove({10, 20, 25, 40}, 25, Keep(1)), ElementsAre(20, 10));
  EXPECT_THAT(StepsToRemove({10, 20, 25, 40}, 25, Keep(3)), IsEmpty());
  // The run fell back from 40 to 20, has saved 25 and now 45.
  EXPECT_THAT(StepsToRemove({20, 25, 40}, 25, Keep(2, {40})), IsEmpty());
  EXPECT_THAT(StepsToRemove({20, 25, 40, 45}, 45, Keep(2, {40})), ElementsAre(40, 20));
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
      ASSERT_TRUE((*writer)->WriteTile(i, tiles.tile(i)).ok());
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
