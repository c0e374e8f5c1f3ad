#include "tests/engine/hf/model_fixture.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "tests/engine/model/tile_parts.h"

namespace megatrain {

OwnedTile::OwnedTile(const TileLayout& layout, DType weight_dtype)
    : block_(TileBytes(layout.elements, weight_dtype), static_cast<char>(0xcd)),
      tile_(MakeTile(&layout, weight_dtype, block_.data())) {}

void ExpectPartsOfTheWhole(const TileLayout& layout, DType weight_dtype,
                           absl::FunctionRef<void(const Tile&)> fill) {
  std::vector<char> whole(
      static_cast<size_t>(TileBytes(layout.elements, weight_dtype, layout.stateless_elements)),
      '\xcd');
  fill(MakeTile(&layout, weight_dtype, whole.data()));
  std::mt19937_64 random(static_cast<uint64_t>(layout.elements));
  for (int parts = 1; parts <= 4; ++parts) {
    const TileParts cut(layout, weight_dtype, RandomCuts(layout.state_elements(), parts, random),
                        RandomCuts(layout.stateless_elements, parts, random));
    for (int i = 0; i < parts; ++i) fill(cut.part(i));
    EXPECT_TRUE(cut.Join() == whole) << parts << " parts";
  }
}

float TestValue(const std::string& tensor, int64_t i) {
  uint32_t hash = 2166136261u;
  for (const char c : tensor) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  hash = (hash ^ static_cast<uint32_t>(i)) * 16777619u;
  // Eight significant bits: exact in F32, F16 and BF16.
  return static_cast<float>(static_cast<int32_t>(hash >> 24) - 128) / 64.0f;
}

ModelDescription SmallConfig(const std::string& family, bool tied) {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 8,
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = family == "qwen3" ? 6 : 2,
                                         .intermediate = 12,
                                         .max_positions = 32});
  model.family = family;
  model.tied_embeddings = tied;
  for (LayerDescription& layer : model.layers) {
    layer.attention.qkv_bias = family == "qwen2";
    if (family == "qwen3") layer.attention.qk_norm = QkNorm::kHead;
  }
  return model;
}

std::string SmallConfigJson(const std::string& family, bool tied) {
  return absl::StrCat(
      R"({"model_type": ")", family, R"(", "vocab_size": 11, "hidden_size": 8,)",
      R"( "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,)",
      R"( "intermediate_size": 12, "max_position_embeddings": 32, "torch_dtype": "float32",)",
      family == "qwen3" ? R"( "head_dim": 6,)" : "", R"( "tie_word_embeddings": )",
      tied ? "true" : "false", "}");
}

uint16_t TestValueToF16(float value) {
  if (value == 0.0f) return 0;
  int exponent = 0;
  // |value| = m 2^exponent with m in [1/2, 1): binary16 has a bias of 15 and 10 fraction bits.
  const float m = std::frexp(std::abs(value), &exponent);
  const auto fraction = static_cast<uint32_t>((m * 2.0f - 1.0f) * 1024.0f);
  return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) |
                               static_cast<uint32_t>(exponent - 1 + 15) << 10 | fraction);
}

void WriteTestTensors(const std::string& path, const std::vector<SafetensorsDeclaration>& tensors) {
  auto writer = SafetensorsWriter::Create(PosixFileSystem(), path, tensors);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const SafetensorsDeclaration& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t length : tensor.shape) elements *= length;
    std::string data;
    for (int64_t i = 0; i < elements; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(TestValue(tensor.name, i));
      if (tensor.dtype == "F32") {
        data.append(reinterpret_cast<const char*>(&bits), 4);
      } else if (tensor.dtype == "BF16" || tensor.dtype == "F16") {
        const uint16_t half = tensor.dtype == "F16" ? TestValueToF16(TestValue(tensor.name, i))
                                                    : static_cast<uint16_t>(bits >> 16);
        data.append(reinterpret_cast<const char*>(&half), 2);
      } else {
        data.append(tensor.dtype.substr(1) == "64" ? 8 : 1, '\0');
      }
    }
    ASSERT_TRUE((*writer)->Append(data.data(), static_cast<int64_t>(data.size())).ok());
  }
  const absl::Status status = (*writer)->Finish();
  ASSERT_TRUE(status.ok()) << status;
}

void WriteSmallModel(const std::string& directory, const std::string& family, bool tied,
                     const std::string& dtype,
                     const std::function<void(std::vector<SafetensorsDeclaration>&)>& change) {
  ASSERT_TRUE(
      WriteFileSynced(PosixFileSystem(), directory + "/config.json", SmallConfigJson(family, tied))
          .ok());
  std::vector<SafetensorsDeclaration> tensors;
  ForEachTensor(BuildModelLayout(SmallConfig(family, tied)), [&](int, const TensorSpec& tensor) {
    tensors.push_back({tensor.name, dtype, tensor.shape});
  });
  if (change) change(tensors);
  WriteTestTensors(directory + "/model.safetensors", tensors);
}

}  // namespace megatrain
