// Experts and buffers: from a model directory into tiles, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/random_weights.h"
#include "engine/hf/safetensors.h"
#include "engine/memory/split_master.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kExperts[] = "model.layers.0.mlp.experts.";
constexpr char kCorrection[] = "model.layers.0.mlp.gate.e_score_correction_bias";

// Two layers, hidden 64: the first with `count` experts of 32 that lie on disk as `tensors` says, a
// shared one, and a router with a buffer; the second dense.
ModelDescription ExpertModel(ExpertTensors tensors, int64_t experts_per_tile, int64_t count = 5) {
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

// The tensors as files declare them, each once.
std::vector<SafetensorsDeclaration> Declared(const ModelLayout& layout, const std::string& dtype,
                                             const std::string& buffer_dtype = "F32") {
  std::vector<SafetensorsDeclaration> tensors;
  std::set<std::string> known;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    if (!known.insert(tensor.name).second) return;
    tensors.push_back({tensor.name, tensor.is_buffer ? buffer_dtype : dtype, tensor.shape});
  });
  return tensors;
}

// A directory with a config.json of another model, which neither HfWeights nor an export reads.
std::string WriteModel(const std::vector<SafetensorsDeclaration>& tensors) {
  const std::string directory = FreshDirectory("model");
  EXPECT_TRUE(WriteFileSynced(PosixFileSystem(), directory + "/config.json",
                              R"({"model_type": "x", "quantization_config": {}, "dtype": "y"})")
                  .ok());
  WriteTestTensors(directory + "/model.safetensors", tensors);
  return directory;
}

// Checks that the parts of tiles hold what the whole ones do.
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

using Tiles = std::vector<std::unique_ptr<OwnedTile>>;

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

// Returns the directory.
std::string Export(const std::string& source, const ModelLayout& layout, const Tiles& tiles,
                   DType dtype, int64_t shard_bytes = kHfShardBytes) {
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

struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  friend bool operator==(const FileTensor&, const FileTensor&) = default;
};

// All tensors of a directory or a file by name.
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

// The value of an element of a tensor's part in a tile.
float Value(const Tile& tile, const TensorSpec& tensor, int64_t i) {
  const int64_t size = DTypeBytes(tile.weight_dtype);
  const char* const at = static_cast<const char*>(tile.weights) + tensor.offset * size;
  if (tensor.is_buffer || size == 4) return reinterpret_cast<const float*>(at)[i];
  const bf16_t half = reinterpret_cast<const bf16_t*>(at)[i];
  return DecodeMaster(half, tensor.frozen ? int16_t{0} : tile.remainder[tensor.offset + i]);
}

using Case = std::tuple<ExpertTensors, int64_t, DType>;
std::string CaseName(const Case& one) {
  const char* const names[] = {"Apart", "Stacked", "Transposed"};
  return absl::StrCat(names[static_cast<int>(std::get<0>(one))], std::get<1>(one),
                      DTypeName(std::get<2>(one)));
}

class ExpertWeightsTest : public ::testing::TestWithParam<Case> {
 protected:
  const ExpertTensors tensors_ = std::get<0>(GetParam());
  const int64_t experts_per_tile_ = std::get<1>(GetParam());
  const DType dtype_ = std::get<2>(GetParam());
};

TEST_P(ExpertWeightsTest, WhatIsLoadedIsExportedByteForByte) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(tensors_, experts_per_tile_));
  ASSERT_EQ(layout.tile_count(), 5 + (4 + experts_per_tile_) / experts_per_tile_);
  const std::string source = WriteModel(Declared(layout, DTypeName(dtype_)));
  const auto weights = HfWeights::Open(source, layout);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->ExactDType(), dtype_) << "whatever the buffer's";
  CheckParts(source, layout, dtype_);
  const Tiles tiles = Load(source, layout, dtype_);
  for (int t = 0; t < layout.tile_count(); ++t) {
    const Tile& tile = tiles[t]->tile();
    for (const TensorSpec& tensor : layout.tiles[t].tensors) {
      for (int64_t i = 0; i < tensor.elements; ++i) {
        ASSERT_EQ(Value(tile, tensor, i), TestValue(tensor.name, tensor.source_begin + i))
            << tensor.name << " " << i;
      }
    }
  }
  for (const int64_t shard_bytes : {kHfShardBytes, int64_t{20000}}) {
    const std::string out = Export(source, layout, tiles, dtype_, shard_bytes);
    EXPECT_EQ(ReadTensors(out), ReadTensors(source)) << shard_bytes;
  }
  const std::string config = *ReadWholeFile(
      PosixFileSystem(), Export(source, layout, tiles, dtype_) + "/config.json", 999);
  EXPECT_THAT(config, Not(HasSubstr("quantization_config")));
}

TEST_P(ExpertWeightsTest, PaddingIsZeroAndInitialWeightsDoNotDependOnTiles) {
  const ModelDescription model = ExpertModel(tensors_, experts_per_tile_);
  const ModelLayout layout = BuildModelLayout(model);
  const ModelLayout whole = BuildModelLayout(ExpertModel(tensors_, 5));
  std::map<std::string, std::vector<float>> wanted;
  ForEachTensor(whole, [&](int, const TensorSpec& tensor) {
    std::vector<float>& values = wanted[tensor.name];
    values.resize(static_cast<size_t>(tensor.elements));
    FillRandomWeights(model, 3, tensor, 0, tensor.elements, values.data(), nullptr);
  });
  for (const TileLayout& tile_layout : layout.tiles) {
    OwnedTile owned(tile_layout, dtype_);
    const Tile& tile = owned.tile();
    InitializeTile(model, 3, tile);
    ExpectPartsOfTheWhole(tile_layout, dtype_,
                          [&](const Tile& part) { InitializeTile(model, 3, part); });
    std::vector<bool> used(static_cast<size_t>(tile.weight_bytes()));
    for (const TensorSpec& tensor : tile_layout.tensors) {
      for (int64_t i = 0; i < tensor.elements; ++i) {
        ASSERT_EQ(Value(tile, tensor, i), wanted[tensor.name][tensor.source_begin + i])
            << tensor.name << " " << i;
        ASSERT_TRUE(!tensor.is_buffer || Value(tile, tensor, i) == 0.0f) << i;
      }
      const int64_t size = DTypeBytes(dtype_);
      const auto first = used.begin() + tensor.offset * size;
      std::fill(first, first + tensor.elements * (tensor.is_buffer ? 4 : size), true);
    }
    for (size_t i = 0; i < used.size(); ++i) {
      ASSERT_TRUE(used[i] || static_cast<const char*>(tile.weights)[i] == 0) << i;
    }
  }
}

TEST_P(ExpertWeightsTest, BuffersAreFp32InEveryTileAndFile) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(tensors_, experts_per_tile_));
  for (const char* const stored : {"F32", "F16", "BF16"}) {
    const std::string source = WriteModel(Declared(layout, DTypeName(dtype_), stored));
    const Tiles tiles = Load(source, layout, dtype_);
    for (int t = 0; t < layout.tile_count(); ++t) {
      for (const TensorSpec& tensor : layout.tiles[t].tensors) {
        if (!tensor.is_buffer) continue;
        EXPECT_EQ(tensor.name, kCorrection);
        EXPECT_EQ(Value(tiles[t]->tile(), tensor, 4), TestValue(kCorrection, 4));
        // A value that neither BF16 nor F16 has.
        char* const at =
            static_cast<char*>(tiles[t]->tile().weights) + tensor.offset * DTypeBytes(dtype_);
        reinterpret_cast<float*>(at)[4] = 0.1f;
      }
    }
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const FileTensor buffer = ReadTensors(Export(source, layout, tiles, dtype)).at(kCorrection);
      EXPECT_EQ(buffer.dtype, "F32");
      EXPECT_EQ(buffer.bytes.substr(16), std::string("\xcd\xcc\xcc\x3d"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ExpertWeightsTest,
                         ::testing::Combine(::testing::Values(ExpertTensors::kApart,
                                                              ExpertTensors::kStacked,
                                                              ExpertTensors::kTransposed),
                                            ::testing::Values(1, 2, 5),
                                            ::testing::Values(DType::kBF16, DType::kF32)),
                         [](const auto& info) { return CaseName(info.param); });

TEST(ExpertParametersTest, BuffersAreNone) {
  ModelDescription model = ExpertModel(ExpertTensors::kStacked, 2);
  const int64_t with = ParameterCount(model);
  model.layers[0].experts.router.correction = false;
  EXPECT_EQ(ParameterCount(model), with);
  EXPECT_EQ(BuildModelLayout(model).trained_parameters, with);
}

std::string OpenError(const std::vector<SafetensorsDeclaration>& tensors,
                      const ModelLayout& layout) {
  const auto weights = HfWeights::Open(WriteModel(tensors), layout);
  EXPECT_FALSE(weights.ok());
  return std::string(weights.status().message());
}

TEST(ExpertFilesTest, AWrongTensorIsNamedOnceWhateverTheTiles) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(ExpertTensors::kStacked, 2));
  std::vector<SafetensorsDeclaration> tensors = Declared(layout, "BF16");
  const std::string name = absl::StrCat(kExperts, "down_proj");
  for (SafetensorsDeclaration& tensor : tensors) {
    if (tensor.name == name) tensor.shape[0] = 4;
  }
  const std::string message = OpenError(tensors, layout);
  EXPECT_THAT(message,
              HasSubstr("down_proj\" has shape [4, 64, 32], config.json says [5, 64, 32]"));
  EXPECT_EQ(message.find(name), message.rfind(name));
}

TEST(ExpertFilesTest, LayersThatPredictLaterTokensArePassedOver) {
  ModelDescription model = ExpertModel(ExpertTensors::kApart, 2);
  std::vector<SafetensorsDeclaration> tensors = Declared(BuildModelLayout(model), "BF16");
  tensors.push_back({"model.layers.2.mlp.gate.weight", "BF16", {3}});
  model.family = "glm4_moe";
  EXPECT_THAT(OpenError(tensors, BuildModelLayout(model)),
              HasSubstr("\"model.layers.2.mlp.gate.weight\" does not"));
  tensors.push_back({"model.layers.2.eh_proj.weight", "BF16", {3}});
  EXPECT_TRUE(HfWeights::Open(WriteModel(tensors), BuildModelLayout(model)).ok());
  // Other families do not declare that they have such layers.
  model.family = "mixtral";
  EXPECT_THAT(OpenError(tensors, BuildModelLayout(model)),
              HasSubstr("\"model.layers.2.eh_proj.weight\" does not"));
}

TEST(ExpertFilesTest, PartsOfATensorMustFollowOneAnother) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(ExpertTensors::kStacked, 2));
  const std::string name = absl::StrCat(kExperts, "down_proj");
  const auto with = [&](const std::vector<SafetensorsDeclaration>& parts) {
    std::vector<SafetensorsDeclaration> tensors = Declared(layout, "BF16");
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
    tensors.insert(tensors.end(), parts.begin(), parts.end());
    return tensors;
  };
  const auto part = [&](int64_t begin, int64_t end, std::vector<int64_t> shape) {
    return SafetensorsDeclaration{HfPartName(name, begin, end), "F32", std::move(shape)};
  };
  // Cut in another way than the tiles.
  const std::string good = WriteModel(with({part(0, 1, {1, 64, 32}), part(1, 5, {4, 64, 32})}));
  const Tiles tiles = Load(good, layout, DType::kF32);
  for (int t = 0; t < layout.tile_count(); ++t) {
    for (const TensorSpec& tensor : layout.tiles[t].tensors) {
      if (tensor.name != name) continue;
      for (int64_t i = 0; i < tensor.elements; ++i) {
        const int64_t at = tensor.source_begin + i, first = int64_t{64} * 32;
        ASSERT_EQ(Value(tiles[t]->tile(), tensor, i),
                  at < first ? TestValue(HfPartName(name, 0, 1), at)
                             : TestValue(HfPartName(name, 1, 5), at - first));
      }
    }
  }
  for (const auto& [parts, message] :
       std::vector<std::pair<std::vector<SafetensorsDeclaration>, std::string>>{
           {{part(1, 5, {4, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(3, 5, {2, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(1, 5, {4, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(2, 5, {3, 32, 64})}, "does not go on"},
           {{part(0, 2, {3, 64, 32}), part(2, 5, {3, 64, 32})}, "does not go on"},
           {{part(0, 2, {2, 64, 32}), part(2, 5, {})}, "does not go on"},
           {{part(0, 0, {0, 64, 32}), part(0, 5, {5, 64, 32})}, "does not"},
           {{part(0, 4, {4, 64, 32})}, "has shape [4, 64, 32]"}}) {
    EXPECT_THAT(OpenError(with(parts), layout), HasSubstr(message));
  }
}

// MXFP4: tests/golden/make_mxfp4_reference.py.

constexpr char kGolden[] = "tests/golden/mxfp4/";

// A directory of a transposed model of two experts whose matrices are those of `packed`.
std::string WritePacked(const std::map<std::string, FileTensor>& packed) {
  const std::string directory = FreshDirectory("packed");
  std::vector<SafetensorsDeclaration> rest;
  for (SafetensorsDeclaration& tensor :
       Declared(BuildModelLayout(ExpertModel(ExpertTensors::kTransposed, 2, 2)), "BF16")) {
    if (!absl::EndsWith(tensor.name, "_proj") || !absl::StrContains(tensor.name, ".experts.")) {
      rest.push_back(std::move(tensor));
    }
  }
  const std::vector<std::string> names = {HfShardName(1, 2), HfShardName(2, 2)};
  WriteTestTensors(JoinPath(directory, names[0]), rest);
  HfWeightMap map;
  for (const SafetensorsDeclaration& tensor : rest) map[tensor.name] = names[0];
  std::vector<SafetensorsDeclaration> declared;
  for (const auto& [name, tensor] : packed) {
    declared.push_back({name, tensor.dtype, tensor.shape});
    map[name] = names[1];
  }
  auto writer =
      SafetensorsWriter::Create(PosixFileSystem(), JoinPath(directory, names[1]), declared);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const auto& [name, tensor] : packed) {
    EXPECT_TRUE(
        (*writer)->Append(tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size())).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(
      WriteFileSynced(PosixFileSystem(), JoinPath(directory, kHfIndexFileName), MakeHfIndex(map, 0))
          .ok());
  EXPECT_TRUE(
      WriteFileSynced(PosixFileSystem(), JoinPath(directory, "config.json"),
                      R"({"model_type": "x", "quantization_config": {"quant_method": "mxfp4"}})")
          .ok());
  return directory;
}

std::map<std::string, FileTensor> Golden(const char* file) {
  return ReadTensors(absl::StrCat(kGolden, file));
}

TEST(Mxfp4WeightsTest, AreThoseThatTransformersDequantises) {
  const std::string source = WritePacked(Golden("blocks.safetensors"));
  for (const int64_t experts_per_tile : {1, 2}) {
    const ModelLayout layout =
        BuildModelLayout(ExpertModel(ExpertTensors::kTransposed, experts_per_tile, 2));
    EXPECT_EQ((*HfWeights::Open(source, layout))->ExactDType(), DType::kBF16);
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      CheckParts(source, layout, dtype);
      const std::string out = Export(source, layout, Load(source, layout, dtype), DType::kBF16);
      const std::map<std::string, FileTensor> exported = ReadTensors(out);
      for (const auto& [name, tensor] : Golden("dequantised.safetensors")) {
        EXPECT_TRUE(exported.at(name) == tensor) << name;
      }
      EXPECT_THAT(*ReadWholeFile(PosixFileSystem(), out + "/config.json", 999),
                  Not(HasSubstr("quantization_config")));
    }
  }
}

// More rows and blocks than a strip has.
TEST(Mxfp4WeightsTest, LargeMatricesAreReadInStrips) {
  ModelDescription model = ExpertModel(ExpertTensors::kTransposed, 1, 2);
  model.hidden = 32 * 130;
  model.layers.pop_back();
  const ModelLayout layout = BuildModelLayout(model);
  const std::string name = absl::StrCat(kExperts, "gate_up_proj");
  std::vector<SafetensorsDeclaration> tensors = Declared(layout, "BF16");
  std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; });
  // The shards' second file, made by hand: bytes that depend on their places.
  const std::string directory = FreshDirectory("strips");
  HfWeightMap map;
  WriteTestTensors(JoinPath(directory, HfShardName(1, 2)), tensors);
  for (const SafetensorsDeclaration& tensor : tensors) map[tensor.name] = HfShardName(1, 2);
  std::string blocks(static_cast<size_t>(2 * 64 * 130 * 16), '\0');
  std::string scales(static_cast<size_t>(2 * 64 * 130), '\0');
  uint32_t state = 1;
  for (char& byte : blocks)
    byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  for (char& byte : scales) {
    byte = static_cast<char>(120 + ((state = state * 1664525u + 1013904223u) >> 28));
  }
  auto writer = SafetensorsWriter::Create(
      PosixFileSystem(), JoinPath(directory, HfShardName(2, 2)),
      {{name + "_blocks", "U8", {2, 64, 130, 16}}, {name + "_scales", "U8", {2, 64, 130}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(blocks.data(), static_cast<int64_t>(blocks.size())).ok());
  ASSERT_TRUE((*writer)->Append(scales.data(), static_cast<int64_t>(scales.size())).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  map[name + "_blocks"] = map[name + "_scales"] = HfShardName(2, 2);
  ASSERT_TRUE(
      WriteFileSynced(PosixFileSystem(), JoinPath(directory, kHfIndexFileName), MakeHfIndex(map, 0))
          .ok());
  CheckParts(directory, layout, DType::kBF16);
  const Tiles tiles = Load(directory, layout, DType::kF32);
  constexpr float kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int t = 0; t < layout.tile_count(); ++t) {
    for (const TensorSpec& tensor : layout.tiles[t].tensors) {
      if (tensor.name != name) continue;
      const int64_t depth = model.hidden, expert = layout.tiles[t].first_expert;
      for (int64_t i = 0; i < tensor.elements; ++i) {
        const int64_t k = i / 64 % depth, row = expert * 64 + i % 64;
        const auto byte = static_cast<uint8_t>(blocks[row * depth / 2 + k / 2]);
        const int four = k % 2 == 0 ? byte & 15 : byte >> 4;
        const int scale = static_cast<uint8_t>(scales[row * 130 + k / 32]);
        const float value = std::ldexp(kMagnitudes[four & 7], scale - 127);
        ASSERT_EQ(Value(tiles[t]->tile(), tensor, i), four >= 8 ? -value : value) << i;
      }
    }
  }
}

std::string PackedError(const std::function<void(std::map<std::string, FileTensor>&)>& change,
                        const ModelLayout& layout) {
  std::map<std::string, FileTensor> packed = Golden("blocks.safetensors");
  change(packed);
  const auto weights = HfWeights::Open(WritePacked(packed), layout);
  if (!weights.ok()) return std::string(weights.status().message());
  for (int i = 0; i < layout.tile_count(); ++i) {
    OwnedTile tile(layout.tiles[i], DType::kBF16);
    const absl::Status status = (*weights)->LoadTile(i, tile.tile());
    if (!status.ok()) return std::string(status.message());
  }
  return "";
}

TEST(Mxfp4WeightsTest, WhatIsWrongIsNamed) {
  const ModelLayout layout = BuildModelLayout(ExpertModel(ExpertTensors::kTransposed, 1, 2));
  const std::string blocks = absl::StrCat(kExperts, "gate_up_proj_blocks");
  const std::string scales = absl::StrCat(kExperts, "gate_up_proj_scales");
  EXPECT_EQ(PackedError([](auto&) {}, layout), "");
  EXPECT_THAT(PackedError([&](auto& packed) { packed.erase(scales); }, layout),
              HasSubstr("gate_up_proj_scales\" is missing"));
  EXPECT_THAT(PackedError([&](auto& packed) { packed.erase(blocks); }, layout),
              AllOf(HasSubstr("gate_up_proj\" is missing"),
                    HasSubstr("gate_up_proj_scales\" does not belong")));
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    packed[blocks].shape = {2, 64, 1, 32};
                  },
                  layout),
              HasSubstr("gate_up_proj_blocks\" has shape [2, 64, 1, 32] of U8, config.json says "
                        "[2, 64, 2, 16] of U8"));
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    packed[scales].shape = {4, 64};
                    packed[scales].dtype = "I8";
                  },
                  layout),
              HasSubstr("gate_up_proj_scales\" has shape [4, 64] of I8, config.json says"));
  EXPECT_THAT(
      PackedError([&](auto& packed) { packed[scales].bytes[64 * 2 + 5 * 2 + 1] = '\xff'; }, layout),
      HasSubstr("gate_up_proj_scales\": the scale of block 1 of row 5 of expert 1 is NaN"));
  // 6 2^127.
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    packed[scales].bytes[0] = '\xfe';
                    packed[blocks].bytes[0] = '\x77';
                  },
                  layout),
              HasSubstr("the scale of block 0 of row 0 of expert 0"));
  // Both forms of one tensor.
  EXPECT_THAT(PackedError(
                  [&](auto& packed) {
                    for (auto& [name, tensor] : Golden("dequantised.safetensors")) {
                      packed[name] = tensor;
                    }
                  },
                  layout),
              HasSubstr("gate_up_proj_blocks\" does not belong to this model"));
  // Experts that are not transposed are never in MXFP4.
  EXPECT_THAT(
      PackedError([](auto&) {}, BuildModelLayout(ExpertModel(ExpertTensors::kStacked, 1, 2))),
      AllOf(HasSubstr("gate_up_proj\" is missing"), HasSubstr("does not belong")));
  ModelDescription odd = ExpertModel(ExpertTensors::kTransposed, 1, 2);
  odd.layers[0].experts.intermediate = 48;
  EXPECT_THAT(PackedError([](auto&) {}, BuildModelLayout(odd)),
              AllOf(HasSubstr("down_proj_blocks\" cannot hold [2, 48, 64]"),
                    HasSubstr("32 values of an MXFP4 block")));
}

}  // namespace
}  // namespace megatrain
