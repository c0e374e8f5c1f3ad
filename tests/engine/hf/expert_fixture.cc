#include "tests/engine/hf/expert_fixture.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_weights.h"
#include "engine/memory/split_master.h"

namespace megatrain {

ModelDescription ExpertModel(ExpertTensors tensors, int64_t experts_per_tile, int64_t count) {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 64,
                                         .layers = 2,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .head_dim = 8,
                                         .intermediate = 24,
                                         .max_positions = 32});
  LayerDescription& layer = model.layers[0];
  layer.feed_forward.intermediate = 0;
  layer.attention.sinks = true;
  layer.experts.count = count;
  layer.experts.chosen = 2;
  layer.experts.intermediate = 32;
  layer.experts.tensors = tensors;
  layer.experts.bias = tensors == ExpertTensors::kTransposed;
  layer.experts.experts_per_tile = experts_per_tile;
  layer.experts.shared_intermediate = 16;
  layer.experts.router.correction = true;
  layer.experts.router.bias = true;
  return model;
}

std::vector<SafetensorsDeclaration> Declared(const ModelLayout& layout, const std::string& dtype,
                                             const std::string& buffer_dtype) {
  std::vector<SafetensorsDeclaration> tensors;
  std::set<std::string> known;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    if (!known.insert(tensor.name).second) return;
    tensors.push_back({tensor.name, tensor.is_buffer ? buffer_dtype : dtype, tensor.shape});
  });
  return tensors;
}

Tiles Load(const std::string& directory, const ModelLayout& layout, DType dtype) {
  Tiles tiles;
  const auto weights = HfWeights::Open(directory, layout);
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return tiles;
  for (int i = 0; i < layout.tile_count(); ++i) {
    tiles.push_back(std::make_unique<OwnedTile>(layout.tiles[i], dtype));
    const absl::Status loaded = (*weights)->LoadTile(i, tiles.back()->tile());
    EXPECT_TRUE(loaded.ok()) << loaded;
  }
  return tiles;
}

void CheckParts(const std::string& directory, const ModelLayout& layout, DType dtype) {
  const auto weights = HfWeights::Open(directory, layout);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (int i = 0; i < layout.tile_count(); ++i) {
    SCOPED_TRACE(absl::StrCat("tile ", i));
    ExpectPartsOfTheWhole(layout.tiles[i], dtype, [&](const Tile& tile) {
      const absl::Status loaded = (*weights)->LoadTile(i, tile);
      EXPECT_TRUE(loaded.ok()) << loaded;
    });
  }
}

std::string Export(const std::string& source, const ModelLayout& layout, const Tiles& tiles,
                   DType dtype, int64_t shard_bytes) {
  const std::string out = FreshDirectory("out") + "/export";
  const absl::Status status = ExportHfDirectory(
      source, layout, dtype, [&](int i) -> absl::StatusOr<Tile> { return tiles[i]->tile(); }, out,
      shard_bytes);
  EXPECT_TRUE(status.ok()) << status;
  const auto found = FindHfWeightFiles(PosixFileSystem(), out);
  EXPECT_TRUE(found.ok()) << found.status();
  for (const std::string& path : found->paths) {
    const auto reader = SafetensorsReader::Open(PosixFileSystem(), path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
      // As readers want it.
      EXPECT_EQ(tensor.begin % (tensor.dtype == "F32" ? 4 : 2), 0) << tensor.name;
    }
  }
  return out;
}

std::map<std::string, FileTensor> ReadTensors(const std::string& path) {
  std::map<std::string, FileTensor> tensors;
  std::vector<std::string> paths = {path};
  if (PosixFileSystem()->IsDirectory(path)) {
    paths = FindHfWeightFiles(PosixFileSystem(), path)->paths;
  }
  for (const std::string& file : paths) {
    const auto reader = SafetensorsReader::Open(PosixFileSystem(), file);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
      FileTensor& out = tensors[tensor.name];
      out = {tensor.dtype, tensor.shape, std::string(static_cast<size_t>(tensor.bytes()), '\0')};
      EXPECT_TRUE((*reader)->Read(tensor, 0, out.bytes.data(), tensor.bytes()).ok());
    }
  }
  return tensors;
}

float Value(const Tile& tile, const TensorSpec& tensor, int64_t i) {
  const int64_t size = DTypeBytes(tile.weight_dtype);
  const char* const at = static_cast<const char*>(tile.weights) + tensor.offset * size;
  if (tensor.is_buffer || size == 4) return reinterpret_cast<const float*>(at)[i];
  const bf16_t half = reinterpret_cast<const bf16_t*>(at)[i];
  return DecodeMaster(half, tensor.frozen ? int16_t{0} : tile.remainder[tensor.offset + i]);
}

}  // namespace megatrain
