// Checkpoints of a model with matrices whose columns lie in several tiles.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/random_weights.h"
#include "engine/inspect/export_checkpoint.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

TEST(ColumnCheckpointTest, IsExportedAsFromMemory) {
  const TestDirectory own;
  const std::string source = own / "source";
  std::filesystem::create_directory(source);
  std::filesystem::copy_file("tests/golden/models/gemma4_shared/config.json",
                             source + "/config.json");
  const auto model = ReadModelDescription(source);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_GT(model->layers[0].per_layer_input.width, 0);
  const ModelLayout layout = BuildModelLayout(*model);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TileSet tiles(layout, dtype);
    auto writer =
        CheckpointWriter::Begin(own / "checkpoints", layout, MakeState(layout, dtype, 1), source);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < tiles.size(); ++i) {
      InitializeTile(*model, 1, tiles.tile(i));
      ASSERT_TRUE((*writer)->WriteTile(i, {tiles.tile(i)}).ok());
    }
    const auto path = (*writer)->Finish(Retention());
    ASSERT_TRUE(path.ok()) << path.status();

    const std::string a = own / "a", b = own / "b";
    const absl::Status exported = ExportCheckpoint(*path, a);
    ASSERT_TRUE(exported.ok()) << exported;
    const auto from_memory = [&](int i) -> absl::StatusOr<Tile> { return tiles.tile(i); };
    ASSERT_TRUE(ExportHfDirectory(source, layout, dtype, from_memory, b).ok());
    const auto weights = [](const std::string& directory) {
      return *ReadWholeFile(PosixFileSystem(), JoinPath(directory, kHfWeightsFileName), 1 << 20);
    };
    EXPECT_EQ(weights(a), weights(b));
    std::filesystem::remove_all(own / "checkpoints");
    std::filesystem::remove_all(a);
    std::filesystem::remove_all(b);
  }
}

}  // namespace
}  // namespace megatrain
