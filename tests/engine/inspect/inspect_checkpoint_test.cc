#include "engine/inspect/inspect_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(InspectCheckpointTest, TellsHowFarTheRunWasAndWhatItKept) {
  FileSystem* const files = PosixFileSystem();
  const TestDirectory own;
  WriteConfigDirectory(files, own / "model");
  const auto path = SaveCheckpoint(own / "checkpoints", 40, DType::kF32, own / "model", files);
  ASSERT_TRUE(path.ok()) << path.status();
  auto manifest = ReadManifest(*path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const int64_t bytes = manifest->total_bytes();

  const auto plain = InspectCheckpoint(*path);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(plain->text,
              AllOf(HasSubstr("step        40 of 200\n"), HasSubstr("sequences   320 seen\n"),
                    HasSubstr("precision   fp32\n"), HasSubstr("threads     2\n"),
                    HasSubstr("made on     cpu, some library\n"),
                    HasSubstr("on disk     " + FormatBytes(bytes) + "\n"),
                    HasSubstr("family      llama\n"), Not(HasSubstr("best  "))));
  const nlohmann::ordered_json json = plain->json;
  EXPECT_EQ(json["kind"], "checkpoint");
  const nlohmann::ordered_json& entry = json["checkpoint"];
  EXPECT_EQ(entry["step"], 40);
  EXPECT_EQ(entry["steps_total"], 200);
  EXPECT_EQ(entry["data_position"], 320);
  EXPECT_EQ(entry["seed"], 42);
  EXPECT_EQ(entry["weight_dtype"], "F32");
  EXPECT_EQ(entry["threads"], 2);
  EXPECT_EQ(entry["arithmetic"], "cpu, some library");
  EXPECT_EQ(entry["bytes"], bytes);
  EXPECT_EQ(entry["spec"]["optimizer.learning_rate"], "0.0003");
  EXPECT_FALSE(entry.contains("best"));
  EXPECT_FALSE(entry.contains("part"));

  // The best one could not be saved.
  manifest->state.arithmetic = "";
  Evaluations& evaluations = manifest->state.evaluations;
  evaluations.best_step = 30;
  evaluations.best_loss = 1.5;
  evaluations.kept_step = 20;
  evaluations.kept_loss = 1.75;
  ASSERT_TRUE(
      WriteFileSynced(files, JoinPath(*path, kManifestFile), SerializeManifest(*manifest)).ok());
  const auto kept = InspectCheckpoint(*path);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->text, AllOf(HasSubstr("best        step 20, eval_loss 1.75\n"),
                                HasSubstr("made on     -\n")));
  EXPECT_EQ(kept->json["checkpoint"]["best"]["step"], 20);
  EXPECT_EQ(kept->json["checkpoint"]["best"]["eval_loss"], 1.75);
}

}  // namespace
}  // namespace megatrain
