// Reading HF directories: HfWeights and ReadModelDescription.
#include "engine/hf/hf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/safetensors.h"
#include "engine/memory/split_master.h"
#include "tests/engine/hf/model_fixture.h"
#include "tests/engine/model/tile_parts.h"
#include "tests/support/counting_file_system.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

float Master(const Tile& tile, int64_t i) {
  if (tile.weight_dtype == DType::kF32) return static_cast<const float*>(tile.weights)[i];
  return DecodeMaster(static_cast<const bf16_t*>(tile.weights)[i], tile.remainder[i]);
}

std::string OpenError(const std::string& directory, const ModelLayout& layout) {
  const auto weights = HfWeights::Open(directory, layout);
  EXPECT_FALSE(weights.ok());
  return std::string(weights.status().message());
}

// save_pretrained's own directories; tests/golden/make_hf_directories.py.
TEST(HfDirectoryTest, LoadsWhatTransformersSaved) {
  for (const char* name : {"llama", "llama3_sharded", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const std::string directory = absl::StrCat("tests/golden/hf/", name);
    const auto config = ReadModelDescription(directory);
    ASSERT_TRUE(config.ok()) << config.status();
    const ModelLayout layout = BuildModelLayout(*config);
    const auto weights = HfWeights::Open(directory, layout);
    ASSERT_TRUE(weights.ok()) << weights.status();
    std::ifstream stream(directory + "/expected.json");
    const nlohmann::json expected = nlohmann::json::parse(stream);
    size_t tensors = 0;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      tensors = 0;
      for (int i = 0; i < layout.tile_count(); ++i) {
        OwnedTile owned(layout.tiles[i], dtype);
        const Tile& tile = owned.tile();
        ASSERT_TRUE((*weights)->LoadTile(i, tile).ok());
        for (const TensorSpec& tensor : layout.tiles[i].tensors) {
          SCOPED_TRACE(tensor.name);
          ++tensors;
          const nlohmann::json& reference = expected.at(tensor.name);
          EXPECT_EQ(reference["shape"].get<std::vector<int64_t>>(), tensor.shape);
          for (int64_t k = 0; k < 3; ++k) {
            EXPECT_EQ(Master(tile, tensor.offset + k), reference["first"][k].get<float>());
          }
          double sum = 0;
          for (int64_t k = 0; k < tensor.elements; ++k) {
            sum += std::abs(static_cast<double>(Master(tile, tensor.offset + k)));
          }
          EXPECT_DOUBLE_EQ(sum, reference["absolute_sum"].get<double>());
        }
      }
    }
    EXPECT_EQ(tensors, expected.size());
  }
}

TEST(HfDirectoryTest, LoadsEveryDTypeIntoEitherMaster) {
  for (const char* file_dtype : {"F32", "F16", "BF16"}) {
    const std::string directory = FreshDirectory(file_dtype);
    WriteSmallModel(directory, "qwen2", false, file_dtype);
    const ModelLayout layout = BuildModelLayout(SmallConfig("qwen2", false));
    const auto weights = HfWeights::Open(directory, layout);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ((*weights)->ExactDType(),
              file_dtype == std::string("BF16") ? DType::kBF16 : DType::kF32);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int i = 0; i < layout.tile_count(); ++i) {
        OwnedTile owned(layout.tiles[i], dtype);
        const Tile& tile = owned.tile();
        ASSERT_TRUE((*weights)->LoadTile(i, tile).ok());
        // Every element of every section: tensors as in the file, zero elsewhere.
        std::vector<float> expected(layout.tiles[i].elements, 0.0f);
        for (const TensorSpec& tensor : layout.tiles[i].tensors) {
          for (int64_t k = 0; k < tensor.elements; ++k) {
            expected[tensor.offset + k] = TestValue(tensor.name, k);
          }
        }
        for (int64_t k = 0; k < layout.tiles[i].elements; ++k) {
          ASSERT_EQ(Master(tile, k), expected[k]);
          ASSERT_TRUE(tile.remainder == nullptr || tile.remainder[k] == 0);
          ASSERT_EQ(tile.exp_avg[k], 0.0f);
          ASSERT_EQ(tile.exp_avg_sq[k], 0.0f);
        }
      }
    }
  }
}

TEST(HfDirectoryTest, LoadsAPartWithoutTheRest) {
  for (const bool tied : {false, true}) {
    const std::string directory = FreshDirectory(tied ? "tied" : "untied");
    WriteSmallModel(directory, "qwen2", tied, "F32");
    const ModelLayout layout =
        BuildModelLayout(SmallConfig("qwen2", tied), [](const std::string& name) {
          return TensorTraits{.frozen = absl::StrContains(name, "norm") ||
                                        absl::StrContains(name, "v_proj")};
        });
    const auto weights = HfWeights::Open(directory, layout);
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int i = 0; i < layout.tile_count(); ++i) {
        ExpectPartsOfTheWhole(layout.tiles[i], dtype, [&](const Tile& tile) {
          const absl::Status loaded = (*weights)->LoadTile(i, tile);
          EXPECT_TRUE(loaded.ok()) << loaded;
        });
      }
    }
  }
}

TEST(HfDirectoryTest, ReadsAboutTheBytesOfAPart) {
  const std::string directory = FreshDirectory("part");
  ModelDescription model = SmallConfig("llama", false);
  model.vocabulary = 300000;  // 9.6 MB
  const ModelLayout layout = BuildModelLayout(model);
  std::vector<SafetensorsDeclaration> tensors;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    tensors.push_back({tensor.name, "F32", tensor.shape});
  });
  WriteTestTensors(directory + "/model.safetensors", tensors);
  CountingFileSystem files;
  const auto weights = HfWeights::Open(directory, layout, &files);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const int64_t elements = layout.tiles[0].state_elements(), third = elements / 3 / 128 * 128;
  const int64_t before = files.read_bytes();
  const TileParts parts(layout.tiles[0], DType::kBF16, {0, third, 2 * third, elements});
  ASSERT_TRUE((*weights)->LoadTile(0, parts.part(1)).ok());
  EXPECT_EQ(files.read_bytes() - before, third * 4);
}

// Tensors are read 4 MiB at a time: of this one each piece has its own place in the file and in the
// tile.
TEST(HfDirectoryTest, LoadsATensorInPieces) {
  for (const char* file_dtype : {"F32", "BF16"}) {
    SCOPED_TRACE(file_dtype);
    const int64_t rows = (int64_t{10} << 20) / (file_dtype[0] == 'F' ? 4 : 2) / 8 + 1;  // 10 MiB
    ModelDescription config = SmallConfig("llama", true);
    config.vocabulary = rows;
    const std::string directory = FreshDirectory(file_dtype);
    WriteSmallModel(directory, "llama", true, file_dtype, [&](auto& tensors) {
      for (SafetensorsDeclaration& tensor : tensors) {
        if (tensor.shape.front() == 11) tensor.shape.front() = rows;
      }
    });
    const ModelLayout layout = BuildModelLayout(config);
    const auto weights = HfWeights::Open(directory, layout);
    ASSERT_TRUE(weights.ok()) << weights.status();
    OwnedTile owned(layout.tiles[0], DType::kBF16);
    ASSERT_TRUE((*weights)->LoadTile(0, owned.tile()).ok());
    int64_t elements = 0;
    for (const TensorSpec& tensor : layout.tiles[0].tensors) {
      for (int64_t k = 0; k < tensor.elements; ++k) {
        ASSERT_EQ(Master(owned.tile(), tensor.offset + k), TestValue(tensor.name, k))
            << tensor.name << ", element " << k;
      }
      elements += tensor.elements;
    }
    EXPECT_GE(elements, rows * 8);
  }
}

TEST(HfDirectoryTest, TakesATiedHeadsDuplicateAndKnownBuffers) {
  const std::string directory = FreshDirectory("model");
  WriteSmallModel(directory, "llama", true, "F32", [](auto& tensors) {
    tensors.push_back({"lm_head.weight", "F32", {11, 8}});
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}});
  });
  const ModelLayout tied = BuildModelLayout(SmallConfig("llama", true));
  const auto other = HfWeights::Open(directory, tied);
  ASSERT_TRUE(other.ok()) << other.status();
  OwnedTile tile(tied.tiles[0], DType::kF32);
  EXPECT_THAT(std::string((*other)->LoadTile(0, tile.tile()).message()),
              HasSubstr("\"lm_head.weight\" differs from"));
  // Their types do not count.
  WriteSmallModel(directory, "llama", true, "BF16", [](auto& tensors) {
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}});
  });
  const auto weights = HfWeights::Open(directory, BuildModelLayout(SmallConfig("llama", true)));
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->ExactDType(), DType::kBF16);
  // Untied, the same two tensors are the head and a buffer; what is missing is the head's own.
  WriteSmallModel(directory, "llama", true, "F32");
  EXPECT_THAT(OpenError(directory, BuildModelLayout(SmallConfig("llama", false))),
              HasSubstr("\"lm_head.weight\" is missing"));
}

TEST(HfDirectoryTest, NamesMissingExtraAndMisshapenTensors) {
  const ModelLayout layout = BuildModelLayout(SmallConfig("llama", false));
  const auto error = [&](const std::function<void(std::vector<SafetensorsDeclaration>&)>& change) {
    const std::string directory = FreshDirectory("model");
    WriteSmallModel(directory, "llama", false, "F32", change);
    const std::string message = OpenError(directory, layout);
    EXPECT_THAT(message, HasSubstr(directory));
    return message;
  };
  EXPECT_THAT(error([](auto& tensors) { tensors.erase(tensors.begin()); }),
              HasSubstr("\"model.embed_tokens.weight\" is missing"));
  EXPECT_THAT(error([](auto& tensors) {
                tensors.push_back({"model.layers.2.mlp.up_proj.weight", "F32", {12, 8}});
              }),
              AllOf(HasSubstr("\"model.layers.2.mlp.up_proj.weight\" does not belong"),
                    HasSubstr("llama, 2 layers")));
  EXPECT_THAT(error([](auto& tensors) {
                tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {8}});
              }),
              HasSubstr("\"model.layers.0.self_attn.q_proj.bias\" does not belong"));
  EXPECT_THAT(error([](auto& tensors) {
                tensors[0].shape = {8, 11};
              }),
              HasSubstr("\"model.embed_tokens.weight\" has shape [8, 11], config.json says "
                        "[11, 8]"));
  EXPECT_THAT(error([](auto& tensors) { tensors[0].dtype = "F64"; }),
              HasSubstr("\"model.embed_tokens.weight\" has dtype F64; F32, F16 and BF16"));
  EXPECT_THAT(error([](auto& tensors) { tensors[0].dtype = "I8"; }), HasSubstr("dtype I8"));
  EXPECT_THAT(error([](auto& tensors) { tensors.clear(); }), HasSubstr("and 16 more tensors"));
}

TEST(HfDirectoryTest, RefusesValuesThatAreNotFinite) {
  const std::string directory = FreshDirectory("model");
  WriteSmallModel(directory, "llama", false, "F32");
  const std::string path = directory + "/model.safetensors";
  std::string content = *ReadWholeFile(PosixFileSystem(), path, 1 << 20);
  const ModelLayout layout = BuildModelLayout(SmallConfig("llama", false));
  // The last element of the file is that of lm_head.weight, 11 x 8.
  const auto load = [&](float value, DType dtype) {
    content.replace(content.size() - 4, 4, reinterpret_cast<const char*>(&value), 4);
    EXPECT_TRUE(WriteFileSynced(PosixFileSystem(), path, content).ok());
    OwnedTile owned(layout.tiles[3], dtype);
    return (*HfWeights::Open(directory, layout))->LoadTile(3, owned.tile());
  };
  const absl::Status nan = load(std::nanf(""), DType::kF32);
  EXPECT_EQ(nan.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(nan.message()),
              AllOf(HasSubstr(path), HasSubstr("\"lm_head.weight\": element 87 is not finite")));
  EXPECT_FALSE(load(std::numeric_limits<float>::infinity(), DType::kBF16).ok());
  EXPECT_TRUE(load(3.4e38f, DType::kF32).ok());
  EXPECT_THAT(std::string(load(3.4e38f, DType::kBF16).message()), HasSubstr("too large"));
}

TEST(HfDirectoryTest, ReadsShardsAndChecksTheirIndex) {
  const std::string directory = FreshDirectory("model");
  FileSystem* const files = PosixFileSystem();
  const ModelLayout layout = BuildModelLayout(SmallConfig("llama", false));
  std::vector<SafetensorsDeclaration> shards[2];
  HfWeightMap map;
  ForEachTensor(layout, [&](int tile, const TensorSpec& tensor) {
    const int shard = tile < 2 ? 0 : 1;
    shards[shard].push_back({tensor.name, "BF16", tensor.shape});
    map[tensor.name] = HfShardName(shard + 1, 2);
  });
  for (int i = 0; i < 2; ++i) WriteTestTensors(directory + "/" + HfShardName(i + 1, 2), shards[i]);
  const std::string index = directory + "/" + kHfIndexFileName;
  ASSERT_TRUE(WriteFileSynced(files, index, MakeHfIndex(map, 0)).ok());
  EXPECT_TRUE(HfWeights::Open(directory, layout).ok());

  HfWeightMap wrong = map;
  wrong["model.norm.weight"] = HfShardName(1, 2);
  ASSERT_TRUE(WriteFileSynced(files, index, MakeHfIndex(wrong, 0)).ok());
  EXPECT_THAT(OpenError(directory, layout),
              AllOf(HasSubstr("\"model.norm.weight\" is not in"), HasSubstr("model-00001-of")));
  wrong = map;
  wrong["model.norm.weight"] = "model-00003-of-00003.safetensors";
  ASSERT_TRUE(WriteFileSynced(files, index, MakeHfIndex(wrong, 0)).ok());
  EXPECT_THAT(OpenError(directory, layout), HasSubstr("model-00003-of-00003.safetensors"));

  const std::string outside = FreshDirectory("elsewhere") + "/outside.safetensors";
  WriteTestTensors(outside, shards[0]);
  for (const std::string& name : {std::string("../elsewhere/outside.safetensors"), outside,
                                  std::string(".."), std::string()}) {
    ASSERT_TRUE(
        WriteFileSynced(files, index, nlohmann::json{{"weight_map", {{"a", name}}}}.dump()).ok());
    EXPECT_THAT(OpenError(directory, layout), HasSubstr("not a file beside the index"));
  }
  for (const char* text : {"{", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 1}})"}) {
    ASSERT_TRUE(WriteFileSynced(files, index, text).ok());
    EXPECT_THAT(OpenError(directory, layout), HasSubstr(index));
  }

  // One tensor in two files.
  shards[1].push_back(shards[0][0]);
  WriteTestTensors(directory + "/" + HfShardName(2, 2), shards[1]);
  ASSERT_TRUE(WriteFileSynced(files, index, MakeHfIndex(map, 0)).ok());
  EXPECT_THAT(OpenError(directory, layout), HasSubstr("is in two files"));
}

TEST(HfDirectoryTest, SaysWhichFilesAreMissing) {
  const ModelLayout layout = BuildModelLayout(SmallConfig("llama", false));
  const std::string empty = FreshDirectory("empty");
  EXPECT_THAT(OpenError(empty, layout),
              AllOf(HasSubstr("holds neither model.safetensors"), HasSubstr("pytorch_model.bin")));
  EXPECT_THAT(OpenError(empty + "/nothing", layout), HasSubstr("no such directory"));
  const absl::Status config = ReadModelDescription(empty).status();
  EXPECT_EQ(config.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.message()), HasSubstr(empty + "/config.json"));
  EXPECT_EQ(ReadModelDescription(empty + "/nothing").status().code(), absl::StatusCode::kNotFound);
  const std::string file = empty + "/file";
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), file, "x").ok());
  const absl::Status not_one = ReadModelDescription(file).status();
  EXPECT_EQ(not_one.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(not_one.message()), HasSubstr("file is not a directory"));
}

TEST(HfDirectoryTest, ATiedHeadIsComparedToItsEnd) {
  const int64_t rows = 50'000;  // 1.6 MB
  ModelDescription config = SmallConfig("llama", true);
  config.vocabulary = rows;
  const std::string directory = FreshDirectory("model"), path = directory + "/model.safetensors";
  WriteSmallModel(directory, "llama", true, "F32", [&](auto& tensors) {
    tensors.front().shape = {rows, 8};  // the embedding
    tensors.push_back({"lm_head.weight", "F32", {rows, 8}});
  });
  std::vector<SafetensorsDeclaration> declared;
  std::map<std::string, std::string> data;
  auto reader = *SafetensorsReader::Open(PosixFileSystem(), path);
  for (const SafetensorsTensor& tensor : reader->header().tensors) {
    declared.push_back({tensor.name, tensor.dtype, tensor.shape});
    data[tensor.name].resize(static_cast<size_t>(tensor.bytes()));
    ASSERT_TRUE(reader->Read(tensor, 0, data[tensor.name].data(), tensor.bytes()).ok());
  }
  data["lm_head.weight"] = data["model.embed_tokens.weight"];
  data["lm_head.weight"].back() ^= 1;
  auto writer = *SafetensorsWriter::Create(PosixFileSystem(), path, declared);
  for (const SafetensorsDeclaration& tensor : declared) {
    const std::string& bytes = data[tensor.name];
    ASSERT_TRUE(writer->Append(bytes.data(), std::ssize(bytes)).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const ModelLayout layout = BuildModelLayout(config);
  OwnedTile tile(layout.tiles[0], DType::kF32);
  const absl::Status status = (*HfWeights::Open(directory, layout))->LoadTile(0, tile.tile());
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"lm_head.weight\" differs from"));
}

}  // namespace
}  // namespace megatrain
