// Random weights, presets, InitializeTile and InitializeHfDirectory.
#include "engine/hf/hf_init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_pool.h"
#include "engine/base/watched_file_system.h"
#include "engine/hf/config/presets.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_weights.h"
#include "engine/hf/random_weights.h"
#include "engine/memory/split_master.h"
#include "engine/model/parameter_count.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RandomWeightsTest, InverseNormalIsGoodToSevenDigits) {
  // From the tables of the normal distribution.
  const std::pair<double, double> points[] = {{0.5, 0.0},
                                              {0.75, 0.6744897501960817},
                                              {0.975, 1.959963984540054},
                                              {0.995, 2.5758293035489004},
                                              {0.9999, 3.719016485455709},
                                              {1 - 1e-7, 5.199337582192817},
                                              {0.1, -1.2815515655446004},
                                              {0x1p-33, -6.337957754553789}};
  for (const auto& [p, z] : points) {
    EXPECT_NEAR(InverseNormal(p), z, 5e-7 * std::max(1.0, std::abs(z))) << p;
  }
  // Odd about 1/2, and rising.
  float previous = -1e9f;
  for (int i = 1; i < 100000; ++i) {
    const float z = InverseNormal(i / 100000.0);
    ASSERT_GE(z, previous) << i;
    ASSERT_NEAR(z, -InverseNormal(1.0 - i / 100000.0), 1e-5) << i;
    previous = z;
  }
}

TensorSpec Matrix(const std::string& name, int64_t elements) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.shape = {elements};
  tensor.elements = elements;
  return tensor;
}

TEST(RandomWeightsTest, HasTheMomentsOfANormalDistribution) {
  ModelDescription config;
  config.initializer_range = 0.02;
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> values(kCount);
  FillRandomWeights(config, 42, Matrix("w", kCount), 0, kCount, values.data(), nullptr);
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double z = values[i] / 0.02;
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
    if (i > 0) neighbours += z * values[i - 1] / 0.02;
  }
  // Five standard errors: 1, sqrt 2, sqrt 96 and 1, each over sqrt n = 1024.
  EXPECT_NEAR(sum / kCount, 0.0, 5 * 1.0 / 1024);
  EXPECT_NEAR(squares / kCount, 1.0, 5 * 1.4143 / 1024);
  EXPECT_NEAR(fourths / kCount, 3.0, 5 * 9.798 / 1024);
  EXPECT_NEAR(neighbours / kCount, 0.0, 5 * 1.0 / 1024);
}

TEST(RandomWeightsTest, DecaysAreLogarithmsOfAUniformDistribution) {
  constexpr int64_t kCount = 1 << 16;
  TensorSpec tensor = Matrix("A_log", kCount);
  tensor.initial = Initial::kLogUniform;
  std::vector<float> values(kCount);
  FillRandomWeights(ModelDescription(), 42, tensor, 0, kCount, values.data(), nullptr);
  double sum = 0, least = 16, most = 0;
  for (const float value : values) {
    const double decay = std::exp(static_cast<double>(value));
    sum += decay;
    least = std::min(least, decay);
    most = std::max(most, decay);
  }
  EXPECT_GT(least, 0.0099);
  EXPECT_LT(least, 0.02);
  EXPECT_LT(most, 16.001);
  EXPECT_GT(most, 15.9);
  // Five standard errors of 16 / sqrt 12, over sqrt n = 256.
  EXPECT_NEAR(sum / kCount, 8.005, 5 * 4.62 / 256);
}

TEST(RandomWeightsTest, DependsOnSeedNameAndElementAlone) {
  ModelDescription config;
  constexpr int64_t kCount = 200000;
  std::vector<float> whole(kCount), again(kCount);
  FillRandomWeights(config, 1, Matrix("a", kCount), 0, kCount, whole.data(), nullptr);
  ThreadPool pool(3);
  FillRandomWeights(config, 1, Matrix("a", kCount), 0, kCount, again.data(), &pool);
  EXPECT_EQ(whole, again);
  // In pieces that begin at odd elements.
  for (int64_t begin = 0; begin < kCount; begin += 77777) {
    const int64_t count = std::min<int64_t>(77777, kCount - begin);
    FillRandomWeights(config, 1, Matrix("a", kCount), begin, count, again.data() + begin, &pool);
  }
  EXPECT_EQ(whole, again);
  FillRandomWeights(config, 2, Matrix("a", kCount), 0, kCount, again.data(), &pool);
  EXPECT_NE(whole, again);
  FillRandomWeights(config, 1, Matrix("b", kCount), 0, kCount, again.data(), &pool);
  EXPECT_NE(whole, again);
}

// The values themselves, computed apart: a seed gives them in every version of the program.
TEST(RandomWeightsTest, ASeedsValuesStayTheSame) {
  TensorSpec tensor = Matrix("model.layers.0.mlp.up_proj.weight", 1 << 20);
  const auto fill = [&](int64_t begin, int64_t elements) {
    std::vector<float> values(static_cast<size_t>(elements));
    FillRandomWeights(ModelDescription(), 42, tensor, begin, elements, values.data(), nullptr);
    return values;
  };
  const auto near = [](double value) {
    return testing::FloatNear(static_cast<float>(value), 1e-6f);
  };
  EXPECT_THAT(fill(0, 4), ElementsAre(near(-0.0030418922), near(0.0383372205), near(0.0101277435),
                                      near(0.0073255772)));
  EXPECT_THAT(fill(1000001, 2), ElementsAre(near(0.0189998732), near(-0.0026629264)));
  tensor.initial = Initial::kLogUniform;
  EXPECT_THAT(fill(0, 2), ElementsAre(near(1.9513954998), near(2.7445898593)));
}

TEST(RandomWeightsTest, ThePaddingTokensRowIsZeroInPiecesToo) {
  constexpr int64_t kRows = 6, kWidth = 5, kCount = kRows * kWidth;
  for (const int64_t padding : {-1, 0, 3, 5}) {
    for (const char* name :
         {"model.embed_tokens.weight", "model.embed_tokens_per_layer.weight", "lm_head.weight"}) {
      const bool has_row = padding >= 0 && std::string(name) != "lm_head.weight";
      ModelDescription config;
      config.padding_id = padding;
      TensorSpec tensor = Matrix(name, kCount);
      tensor.shape = {kRows, kWidth};
      for (const int64_t piece : {kCount, int64_t{7}}) {
        std::vector<float> values(kCount, 0.0f);
        for (int64_t begin = 0; begin < kCount; begin += piece) {
          FillRandomWeights(config, 1, tensor, begin, std::min(piece, kCount - begin),
                            values.data() + begin, nullptr);
        }
        for (int64_t i = 0; i < kCount; ++i) {
          EXPECT_EQ(values[i] == 0.0f, has_row && i / kWidth == padding)
              << name << " " << padding << " " << i;
        }
      }
    }
  }
}

TEST(HfInitTest, TilesOfEitherPrecisionHoldTheSameMasters) {
  const ModelDescription config = SmallConfig("qwen2", false);
  const ModelLayout layout = BuildModelLayout(config);
  for (const TileLayout& tile_layout : layout.tiles) {
    OwnedTile full(tile_layout, DType::kF32), split(tile_layout, DType::kBF16);
    InitializeTile(config, 9, full.tile());
    InitializeTile(config, 9, split.tile());
    std::vector<float> expected(tile_layout.elements, 0.0f);
    for (const TensorSpec& tensor : tile_layout.tensors) {
      for (int64_t i = 0; i < tensor.elements; ++i) {
        const float value = static_cast<const float*>(full.tile().weights)[tensor.offset + i];
        expected[tensor.offset + i] = value;
        if (tensor.decays) {
          EXPECT_LT(std::abs(value), 0.2f);
        } else {
          EXPECT_EQ(value, tensor.initial == Initial::kOne ? 1.0f : 0.0f);
        }
      }
    }
    for (int64_t i = 0; i < tile_layout.elements; ++i) {
      ASSERT_EQ(static_cast<const float*>(full.tile().weights)[i], expected[i]);
      ASSERT_EQ(DecodeMaster(static_cast<const bf16_t*>(split.tile().weights)[i],
                             split.tile().remainder[i]),
                expected[i]);
      ASSERT_EQ(split.tile().exp_avg[i], 0.0f);
      ASSERT_EQ(full.tile().exp_avg_sq[i], 0.0f);
    }
  }
}

struct Published {
  int64_t parameters, positions;
  double theta, epsilon;  // `theta` is of rope 0
  int64_t bos, eos;
};

TEST(PresetsTest, HaveThePublishedSizesAndSettings) {
  const std::map<std::string, Published> published = {
      {"qwen2.5-0.5b", {494032768, 32768, 1e6, 1e-6, 151643, 151643}},
      {"qwen2.5-1.5b", {1543714304, 131072, 1e6, 1e-6, 151643, 151643}},
      {"qwen2.5-3b", {3085938688, 32768, 1e6, 1e-6, 151643, 151643}},
      {"qwen2.5-7b", {7615616512, 131072, 1e6, 1e-6, 151643, 151643}},
      {"qwen2.5-14b", {14770033664, 131072, 1e6, 1e-5, 151643, 151643}},
      {"qwen2.5-32b", {32763876352, 131072, 1e6, 1e-5, 151643, 151643}},
      {"qwen2.5-72b", {72706203648, 131072, 1e6, 1e-5, 151643, 151643}},
      {"qwen3-0.6b", {596049920, 40960, 1e6, 1e-6, 151643, 151645}},
      {"qwen3-8b", {8190735360, 40960, 1e6, 1e-6, 151643, 151645}},
      {"qwen3-32b", {32762123264, 40960, 1e6, 1e-6, 151643, 151645}},
      {"llama3-8b", {8030261248, 8192, 5e5, 1e-5, 128000, 128001}},
      {"llama3-70b", {70553706496, 8192, 5e5, 1e-5, 128000, 128001}},
      {"llama-tiny", {1017728, 2048, 1e4, 1e-5, 256, 257}},
      {"llama-10m", {10083520, 2048, 1e4, 1e-5, 256, 257}},
      {"llama-124m", {109529856, 2048, 1e4, 1e-5, 1, 2}},
      {"llama-1.3b", {1345423360, 2048, 1e4, 1e-5, 1, 2}},
      {"mistral-small-24b", {23572403200, 32768, 1e8, 1e-5, 1, 2}},
      {"gemma2-9b", {9241705984, 8192, 1e4, 1e-6, 2, 1}},
      {"gemma3-27b", {27009346304, 131072, 1e6, 1e-6, 2, 1}},
      {"gemma4-e2b", {4628569344, 131072, 1e6, 1e-6, 2, 1}},
      {"gemma4-e4b", {7463013376, 131072, 1e6, 1e-6, 2, 1}},
      {"gemma4-31b", {30697345280, 262144, 1e6, 1e-6, 2, 1}},
      {"gemma4-26b-a4b", {25233141760, 262144, 1e6, 1e-6, 2, 1}},
      {"phi4-14b", {14659507200, 16384, 2.5e5, 1e-5, 100257, 100265}},
      {"granite3.3-8b", {8170864640, 131072, 1e7, 1e-5, 0, 0}},
      {"smollm3-3b", {3075098624, 65536, 5e6, 1e-6, 128000, 128001}},
      {"olmo3-7b", {7298011136, 65536, 5e5, 1e-6, 100257, 100257}},
      {"glm4-9b", {9400279040, 32768, 1e4, 1e-5, 151331, 151329}},
      {"mixtral-8x7b", {46702792704, 32768, 1e6, 1e-5, 1, 2}},
      {"qwen3-30b-a3b", {30532122624, 40960, 1e6, 1e-6, 151643, 151645}},
      {"qwen3-235b-a22b", {235093634560, 40960, 1e6, 1e-6, 151643, 151645}},
      {"gpt-oss-20b", {20914757184, 131072, 1.5e5, 1e-5, 199998, 200002}},
      {"gpt-oss-120b", {116829156672, 131072, 1.5e5, 1e-5, 199998, 200002}},
      {"glm-4.5-air", {106852245504, 131072, 1e6, 1e-5, 151331, 151329}},
      {"glm-4.5", {352797814784, 131072, 1e6, 1e-5, 151331, 151329}},
      {"deepseek-v3", {671026404352, 163840, 1e4, 1e-6, 0, 1}},
      {"qwen3-next-80b-a3b", {79674391296, 262144, 1e7, 1e-6, 151643, 151645}},
      {"qwen3.5-9b", {8953803264, 262144, 1e7, 1e-6, 248044, 248044}},
      {"qwen3.5-35b-a3b", {34660610688, 262144, 1e7, 1e-6, 248044, 248044}}};
  EXPECT_EQ(Presets().size(), published.size());
  for (const Preset& preset : Presets()) {
    SCOPED_TRACE(preset.name);
    const auto config = ParseModelDescription(preset.config_json, preset.name);
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_TRUE(published.contains(preset.name));
    const Published& wanted = published.at(preset.name);
    EXPECT_EQ(ParameterCount(*config), wanted.parameters);
    EXPECT_EQ(config->max_positions, wanted.positions);
    EXPECT_EQ(config->ropes[0].theta, wanted.theta);
    EXPECT_EQ(config->norm_epsilon, wanted.epsilon);
    const char* const dtype = preset.dtype == DType::kBF16 ? "bfloat16" : "float32";
    EXPECT_THAT(preset.config_json,
                AllOf(HasSubstr(absl::StrCat("\"bos_token_id\": ", wanted.bos, ",\n")),
                      HasSubstr(absl::StrCat("\"eos_token_id\": ", wanted.eos, ",\n")),
                      HasSubstr(absl::StrCat("\"torch_dtype\": \"", dtype, "\""))));
  }
}

ModelDescription DescribePreset(const std::string& name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return *ParseModelDescription(preset.config_json, name);
  }
  ADD_FAILURE() << name;
  return ModelDescription();
}

// What neither sizes nor names of tensors tell.
TEST(PresetsTest, HaveThePublishedMathematics) {
  const ModelDescription gemma2 = DescribePreset("gemma2-9b");
  EXPECT_EQ(gemma2.logit_softcap, 30.0);
  EXPECT_EQ(gemma2.layers[0].attention.softcap, 50.0);
  EXPECT_EQ(gemma2.layers[0].attention.window, 4096);
  EXPECT_EQ(gemma2.layers[1].attention.window, 0);
  const ModelDescription gemma3 = DescribePreset("gemma3-27b");
  EXPECT_EQ(gemma3.layers[0].attention.score_scale, 1.0 / std::sqrt(168.0));
  EXPECT_EQ(gemma3.layers[4].attention.window, 1024);
  EXPECT_EQ(gemma3.layers[5].attention.window, 0);
  EXPECT_EQ(gemma3.ropes[0].type, RopeType::kLinear);
  EXPECT_EQ(gemma3.ropes[0].factor, 8.0);
  EXPECT_EQ(gemma3.ropes[1].theta, 1e4);
  const ModelDescription granite = DescribePreset("granite3.3-8b");
  EXPECT_EQ(granite.embedding_scale, 12.0);
  EXPECT_EQ(granite.logit_scale, 1.0 / 16);
  EXPECT_EQ(granite.layers[0].residual_scale, 0.22);
  EXPECT_EQ(granite.layers[0].attention.score_scale, 1.0 / 128);
  EXPECT_EQ(DescribePreset("mistral-small-24b").layers[0].attention.window, 0);
  EXPECT_EQ(DescribePreset("smollm3-3b").layers[3].attention.query_rope, -1);
  EXPECT_EQ(DescribePreset("gpt-oss-20b").layers[0].attention.window, 128);
  const ExpertsDescription deepseek = DescribePreset("deepseek-v3").layers[3].experts;
  EXPECT_EQ(deepseek.router.chosen_groups, 4);
  EXPECT_EQ(deepseek.router.scale, 2.5);
  EXPECT_EQ(DescribePreset("glm-4.5").layers[3].experts.router.scale, 2.5);
  EXPECT_EQ(DescribePreset("glm-4.5-air").layers[1].experts.router.scale, 1.0);
  EXPECT_TRUE(DescribePreset("qwen3-30b-a3b").layers[0].experts.router.normalized);
}

TEST(HfInitTest, WritesADirectoryThatLoads) {
  const std::string directory = FreshDirectory("parent") + "/model/";
  ThreadPool pool(2);
  const absl::Status status = InitializeHfDirectory("llama-tiny", 42, false, directory, &pool);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(
      *PosixFileSystem()->ListDirectory(directory),
      ElementsAre("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"));
  const auto config = ReadModelDescription(directory);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocabulary, 259);
  const ModelLayout layout = BuildModelLayout(*config);
  const auto weights = HfWeights::Open(directory, layout);
  ASSERT_TRUE(weights.ok()) << weights.status();
  // What was written is what InitializeTile makes.
  for (int i = 0; i < layout.tile_count(); ++i) {
    OwnedTile loaded(layout.tiles[i], DType::kF32), made(layout.tiles[i], DType::kF32);
    ASSERT_TRUE((*weights)->LoadTile(i, loaded.tile()).ok());
    InitializeTile(*config, 42, made.tile());
    EXPECT_EQ(std::string(static_cast<char*>(loaded.tile().weights), loaded.tile().weight_bytes()),
              std::string(static_cast<char*>(made.tile().weights), made.tile().weight_bytes()));
  }
}

TEST(HfInitTest, ConfigOnlyWritesNoWeights) {
  const std::string directory = FreshDirectory("model");  // there, and empty
  const absl::Status status = InitializeHfDirectory("qwen2.5-72b", 1, true, directory);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(*PosixFileSystem()->ListDirectory(directory), ElementsAre("config.json"));
  EXPECT_TRUE(ReadModelDescription(directory).ok());
}

TEST(HfInitTest, ALinkToADirectoryStays) {
  const std::string real = FreshDirectory("real"), link = FreshDirectory("parent") + "/link";
  std::filesystem::create_directory_symlink(real, link);
  const absl::Status status = InitializeHfDirectory("qwen2.5-72b", 1, true, link + "/");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(*PosixFileSystem()->ListDirectory(real), ElementsAre("config.json"));
}

TEST(HfInitTest, RefusesUnknownPresetsAndDirectoriesInUse) {
  const std::string directory = FreshDirectory("model");
  const absl::Status unknown = InitializeHfDirectory("llama-huge", 1, true, directory);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr("\"llama-huge\""), HasSubstr("llama-tiny, llama-10m")));
  const std::string file = directory + "/x";
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), file, "x").ok());
  for (const std::string& used : {directory, file}) {
    EXPECT_EQ(InitializeHfDirectory("llama-tiny", 1, true, used).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), file, 10), "x");
}

TEST(HfInitTest, LargeTensorsOfEitherPrecisionHoldTheSameMasters) {
  ModelDescription config = SmallConfig("llama", true);
  config.vocabulary = 20'000;  // 160,000 elements: more than are converted at once
  const ModelLayout layout = BuildModelLayout(config);
  OwnedTile full(layout.tiles[0], DType::kF32), split(layout.tiles[0], DType::kBF16);
  InitializeTile(config, 9, full.tile());
  InitializeTile(config, 9, split.tile());
  for (int64_t i = 0; i < layout.tiles[0].elements; ++i) {
    ASSERT_EQ(DecodeMaster(static_cast<const bf16_t*>(split.tile().weights)[i],
                           split.tile().remainder[i]),
              static_cast<const float*>(full.tile().weights)[i])
        << i;
  }
}

// Keeps the first 12 MiB of the weights; then the disk is full.
class FirstBlocks : public WatchedFileSystem {
 public:
  FirstBlocks() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string&, int64_t) override {
    return std::make_unique<File>(bytes);
  }
  std::string bytes;

 private:
  class File : public BlockFile {
   public:
    explicit File(std::string& to) : to_(to) {}
    absl::Status Write(int64_t, const void* data, int64_t size) override {
      to_.append(static_cast<const char*>(data), static_cast<size_t>(size));
      if (to_.size() < (size_t{12} << 20)) return absl::OkStatus();
      return absl::ResourceExhaustedError("enough");
    }
    absl::Status Sync() override { return absl::OkStatus(); }
    absl::Status Close() override { return absl::OkStatus(); }

   private:
    std::string& to_;
  };
};

TEST(HfInitTest, ALargeTensorIsWrittenInPiecesAndRounded) {
  FirstBlocks files;
  ThreadPool pool(2);
  EXPECT_EQ(InitializeHfDirectory("qwen2.5-0.5b", 42, false, FreshDirectory("parent") + "/model",
                                  &pool, &files)
                .code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_GE(files.bytes.size(), size_t{12} << 20);
  ModelDescription config;
  for (const Preset& preset : Presets()) {
    if (preset.name == "qwen2.5-0.5b") config = *ParseModelDescription(preset.config_json, "x");
  }
  const ModelLayout layout = BuildModelLayout(config);
  uint64_t header = 0;
  std::memcpy(&header, files.bytes.data(), sizeof(header));
  std::vector<bf16_t> written((files.bytes.size() - sizeof(header) - header) / sizeof(bf16_t));
  std::memcpy(written.data(), files.bytes.data() + sizeof(header) + header, 2 * written.size());
  std::vector<float> values(written.size());
  FillRandomWeights(config, 42, layout.tiles[0].tensors[0], 0, static_cast<int64_t>(values.size()),
                    values.data(), &pool);
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) wrong += written[i] != EncodeMaster(values[i]).weight;
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace megatrain
