// Checkpoints of models with experts, whose tensors may lie in several tiles, and with buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/random_weights.h"
#include "engine/hf/safetensors.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

// The second layer has five experts; an odd number of sinks would move what follows them in a file.
ModelDescription SparseConfig(ExpertTensors tensors, int64_t experts_per_tile) {
  ModelDescription model = TinyConfig();
  LayerDescription& layer = model.layers[1];
  layer.attention.sinks = true;
  layer.feed_forward.intermediate = 0;
  ExpertsDescription& experts = layer.experts;
  experts.count = 5;
  experts.chosen = 2;
  experts.intermediate = 10;
  experts.tensors = tensors;
  experts.bias = tensors == ExpertTensors::kTransposed;
  experts.experts_per_tile = experts_per_tile;
  experts.router.correction = true;
  experts.router.bias = true;
  return model;
}

absl::StatusOr<std::string> Save(const std::string& directory, const ModelLayout& layout,
                                 const TileSet& tiles, DType dtype, const std::string& config) {
  MT_ASSIGN_OR_RETURN(
      const std::unique_ptr<CheckpointWriter> writer,
      CheckpointWriter::Begin(directory, layout, MakeState(layout, dtype, 7), config));
  for (int i = tiles.size() - 1; i >= 0; --i) {
    MT_RETURN_IF_ERROR(writer->WriteTile(i, {tiles.tile(i)}));
  }
  return writer->Finish(Retention());
}

using Case = std::tuple<ExpertTensors, int64_t, DType>;
std::string CaseName(const Case& one) {
  const char* const names[] = {"Apart", "Stacked", "Transposed"};
  return absl::StrCat(names[static_cast<int>(std::get<0>(one))], std::get<1>(one),
                      DTypeName(std::get<2>(one)));
}

class ExpertCheckpointTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { WriteConfigDirectory(files_, config_); }

  bool HasParts() const {
    return std::get<0>(GetParam()) != ExpertTensors::kApart && std::get<1>(GetParam()) < 5;
  }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory own_;
  const std::string config_ = own_ / "model", directory_ = own_ / "checkpoints";
  const DType dtype_ = std::get<2>(GetParam());
  const ModelLayout layout_ =
      BuildModelLayout(SparseConfig(std::get<0>(GetParam()), std::get<1>(GetParam())));
};

TEST_P(ExpertCheckpointTest, IsResumedBitForBit) {
  TileSet saved(layout_, dtype_), loaded(layout_, dtype_);
  saved.Fill(7);
  loaded.Scramble();
  const auto path = Save(directory_, layout_, saved, dtype_, config_);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
  for (int i = 0; i < loaded.size(); ++i) {
    const absl::Status status = LoadTile(*path, layout_, i, loaded.tile(i));
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(saved == loaded);
  const auto manifest = ReadManifest(*path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const int64_t estimate = CheckpointWriter::EstimateBytes(layout_, dtype_);
  EXPECT_GT(estimate, manifest->total_bytes());
  EXPECT_LT(estimate - 12000, manifest->total_bytes());
  // Other programs find a model only if they can read it.
  EXPECT_EQ(files_->FileExists(JoinPath(*path, kHfIndexFileName)), !HasParts());
  for (const ManifestFile& file : manifest->files) {
    if (!file.name.ends_with(".safetensors")) continue;
    const auto reader = SafetensorsReader::Open(files_, JoinPath(*path, file.name));
    for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
      EXPECT_EQ(tensor.begin % (tensor.dtype == "F32" ? 4 : 2), 0) << tensor.name;
    }
  }
}

TEST_P(ExpertCheckpointTest, IsAModelThatIsReadAndExported) {
  TileSet saved(layout_, dtype_), loaded(layout_, dtype_);
  for (int i = 0; i < saved.size(); ++i) {
    InitializeTile(layout_.model, 1, saved.tile(i));
    for (const TensorSpec& tensor : layout_.tiles[i].tensors) {
      if (!tensor.is_buffer) continue;
      const float values[] = {0.1f, -2, 3, 4, 5};
      std::memcpy(static_cast<char*>(saved.tile(i).weights) + tensor.offset * DTypeBytes(dtype_),
                  values, sizeof(values));
    }
  }
  const auto path = Save(directory_, layout_, saved, dtype_, config_);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto weights = HfWeights::Open(*path, layout_);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (int i = 0; i < loaded.size(); ++i) {
    ASSERT_TRUE((*weights)->LoadTile(i, loaded.tile(i)).ok());
    const char* const want = static_cast<const char*>(saved.tile(i).weights);
    EXPECT_TRUE(std::equal(want, want + saved.tile(i).weight_bytes(),
                           static_cast<const char*>(loaded.tile(i).weights)));
  }
  const auto names = ReadHfTensorNames(files_, *path);
  ASSERT_TRUE(names.ok()) << names.status();
  ForEachTensor(layout_, [&](int, const TensorSpec& tensor) {
    EXPECT_TRUE(names->contains(tensor.name)) << tensor.name;
  });
  // As ExportCheckpoint does: the memory of one tile for all.
  std::vector<char> block(static_cast<size_t>(layout_.tile_elements_max * DTypeBytes(dtype_)));
  std::vector<int> read;
  const auto from_checkpoint = [&](int index) -> absl::StatusOr<Tile> {
    read.push_back(index);
    const Tile tile = MakeWeightsTile(&layout_.tiles[index], dtype_, block.data());
    MT_RETURN_IF_ERROR(LoadTile(*path, layout_, index, tile));
    return tile;
  };
  const auto from_memory = [&](int index) -> absl::StatusOr<Tile> { return saved.tile(index); };
  const std::string a = own_ / "a", b = own_ / "b";
  ASSERT_TRUE(ExportHfDirectory(*path, layout_, dtype_, from_checkpoint, a).ok());
  std::vector<int> each_once(static_cast<size_t>(layout_.tile_count()));
  std::iota(each_once.begin(), each_once.end(), 0);
  EXPECT_EQ(read, each_once);
  ASSERT_TRUE(ExportHfDirectory(config_, layout_, dtype_, from_memory, b).ok());
  EXPECT_EQ(*ReadWholeFile(files_, JoinPath(a, kHfWeightsFileName), 1 << 20),
            *ReadWholeFile(files_, JoinPath(b, kHfWeightsFileName), 1 << 20));
}

TEST_P(ExpertCheckpointTest, OfAnotherCutIntoTilesIsRefused) {
  TileSet saved(layout_, dtype_);
  saved.Fill(7);
  const auto path = Save(directory_, layout_, saved, dtype_, config_);
  ASSERT_TRUE(path.ok()) << path.status();
  const ModelLayout other = BuildModelLayout(SparseConfig(std::get<0>(GetParam()), 3));
  const auto state = ReadCheckpointState(*path);
  ASSERT_TRUE(state.ok());
  EXPECT_THAT(std::string(CheckResumable(*state, MakeState(other, dtype_, 0)).message()),
              HasSubstr("another model"));
  TileSet loaded(other, dtype_);
  absl::Status status;
  for (int i = 0; i < loaded.size(); ++i) {
    status.Update(LoadTile(*path, other, i, loaded.tile(i)));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

INSTANTIATE_TEST_SUITE_P(Forms, ExpertCheckpointTest,
                         ::testing::Combine(::testing::Values(ExpertTensors::kApart,
                                                              ExpertTensors::kStacked,
                                                              ExpertTensors::kTransposed),
                                            ::testing::Values(2, 5),
                                            ::testing::Values(DType::kBF16, DType::kF32)),
                         [](const auto& info) { return CaseName(info.param); });

}  // namespace
}  // namespace megatrain
