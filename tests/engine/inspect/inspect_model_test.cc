#include "engine/inspect/inspect_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_init.h"
#include "engine/hf/safetensors.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(InspectModelTest, DescribesADirectory) {
  const auto report = InspectModel("tests/golden/hf/llama3_sharded");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(
      report->text,
      AllOf(HasSubstr("family      llama\n"), HasSubstr("parameters  4,448\n"),
            HasSubstr("20 tensors of BF16, 4,448 elements"),
            HasSubstr("model.layers.0.mlp.up_proj.weight"), Not(HasSubstr("model.layers.1."))));
  const nlohmann::ordered_json json = report->json;
  EXPECT_EQ(json["kind"], "hf_directory");
  EXPECT_EQ(json["parameters"], 4448);
  EXPECT_EQ(json["bytes"], 8896);
  EXPECT_EQ(json["model"]["rope"], "llama3");
  EXPECT_EQ(json["dtypes"]["BF16"]["tensors"], 20);
  EXPECT_EQ(json["files"].size(), 4u);
  EXPECT_EQ(json["tensors"].size(), 20u);
  EXPECT_EQ(json["tensors"][0]["file"], "model-00001-of-00004.safetensors");
}

TEST(InspectModelTest, SaysWhatAWrapperCarries) {
  const auto report = InspectModel("tests/golden/models/gemma3_wrapper");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(
      report->text,
      AllOf(HasSubstr("family      gemma3_text, the text model of gemma3\n"),
            HasSubstr(
                "carried     23 other tensors, 7.16 KiB (7,336 bytes): not trained, and unchanged"),
            HasSubstr("language_model.model.layers.0.mlp.up_proj.weight"),
            Not(HasSubstr("model.layers.1.")), Not(HasSubstr("vision_tower"))));
  const nlohmann::ordered_json json = report->json;
  EXPECT_EQ(json["model"]["family"], "gemma3_text");
  EXPECT_EQ(json["model"]["wrapper"]["family"], "gemma3");
  EXPECT_EQ(json["model"]["wrapper"]["carried_tensors"], 23);
  EXPECT_EQ(json["tensors"].size(), 51u);
}

TEST(InspectModelTest, ListsOneLayerOfEachKind) {
  // Every second layer has experts.
  const auto report = InspectModel("tests/golden/models/qwen3_moe");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->text,
              AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"),
                    HasSubstr("model.layers.1.mlp.experts.0.up_proj.weight"),
                    HasSubstr("model.layers.1.mlp.gate.weight"), Not(HasSubstr("experts.1.")),
                    Not(HasSubstr("model.layers.2.")), Not(HasSubstr("model.layers.3."))));
  const nlohmann::ordered_json& model = report->json["model"];
  EXPECT_EQ(model["intermediate"], 52);
  EXPECT_EQ(model["experts"]["count"], 8);
  EXPECT_EQ(model["experts"]["chosen"], 3);
  EXPECT_EQ(model["experts"]["intermediate"], 22);
  EXPECT_EQ(model["experts"]["shared_intermediate"], 0);
  const auto file = InspectModel("tests/golden/models/qwen3_moe/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->text, AllOf(HasSubstr("model.layers.1.mlp.gate.weight"),
                                Not(HasSubstr("model.layers.2."))));
}

TEST(InspectModelTest, TheLayerOfTheLowestNumberStandsForItsKind) {
  const std::string path = FreshDirectory("layers") + "/" + kHfWeightsFileName;
  WriteTestTensors(path, {{"model.layers.10.mlp.up_proj.weight", "F32", {2, 2}},
                          {"model.layers.9.mlp.up_proj.weight", "F32", {2, 2}},
                          {"model.layers.11.mlp.up_proj.weight", "F32", {2, 3}}});
  const auto report = InspectModel(path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->text, AllOf(HasSubstr("model.layers.9."), HasSubstr("model.layers.11."),
                                  Not(HasSubstr("model.layers.10."))));
}

TEST(InspectModelTest, SaysWhatIsIgnored) {
  const std::string source = "tests/golden/models/glm4_moe";
  const auto plain = InspectModel(source);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT(plain->text, Not(HasSubstr("ignored")));
  const auto reader = SafetensorsReader::Open(PosixFileSystem(), source + "/" + kHfWeightsFileName);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<SafetensorsDeclaration> tensors;
  for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  tensors.push_back({"model.layers.2.eh_proj.weight", "BF16", {2, 4}});
  tensors.push_back({"model.layers.2.mlp.gate.weight", "BF16", {2, 2}});
  const std::string directory = FreshDirectory("model");
  std::filesystem::copy_file(source + "/config.json", directory + "/config.json");
  WriteTestTensors(directory + "/" + kHfWeightsFileName, tensors);
  const auto report = InspectModel(directory);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string line =
      "2 tensors of layers that predict further tokens (model.layers.2.*) are not trained, and are "
      "not in checkpoints and exports";
  EXPECT_THAT(report->text,
              AllOf(HasSubstr("ignored     " + line + "\n"), Not(HasSubstr("layers.2.eh_proj"))));
  EXPECT_EQ(report->json["model"]["ignored"], line);
}

TEST(InspectModelTest, DescribesAFileAndADirectoryWithoutWeights) {
  auto file = InspectModel("tests/golden/hf/qwen2/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->json["kind"], "safetensors");
  const std::string directory = FreshDirectory("model");
  ASSERT_TRUE(InitializeHfDirectory("llama3-70b", 1, true, directory).ok());
  auto report = InspectModel(directory);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->text, HasSubstr("parameters  70,553,706,496\n"));
  EXPECT_EQ(report->json["files"].size(), 0u);
}

TEST(InspectModelTest, AFileIsCountedByItsTypes) {
  const std::string path = FreshDirectory("types") + "/" + kHfWeightsFileName;
  WriteTestTensors(path, {{"a", "F32", {2, 2}}, {"b", "BF16", {3}}, {"c", "BF16", {5}}});
  const auto report = InspectModel(path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->text, AllOf(HasSubstr("2 tensors of BF16, 8 elements, "),
                                  HasSubstr("1 tensors of F32, 4 elements, "),
                                  HasSubstr("files       1\n"), HasSubstr("[2, 2]")));
  const nlohmann::ordered_json json = report->json;
  EXPECT_EQ(json["path"], path);
  EXPECT_EQ(json["parameters"], 12);
  EXPECT_EQ(json["bytes"], 32);
  EXPECT_EQ(json["dtypes"]["BF16"]["tensors"], 2);
  EXPECT_EQ(json["dtypes"]["BF16"]["parameters"], 8);
  EXPECT_EQ(json["dtypes"]["BF16"]["bytes"], 16);
  EXPECT_EQ(json["dtypes"]["F32"]["bytes"], 16);
  EXPECT_EQ(json["tensors"][1]["name"], "b");
  EXPECT_EQ(json["tensors"][1]["shape"], nlohmann::ordered_json::array({3}));
  EXPECT_EQ(json["tensors"][1]["bytes"], 6);
  EXPECT_FALSE(json.contains("model"));
}

// A tied matrix is one, and is not a second time in the files.
TEST(InspectModelTest, ParametersOfADirectoryAreThoseOfItsConfiguration) {
  const std::string directory = FreshDirectory("tied");
  WriteSmallModel(directory, "llama", true, "F32");
  const auto tied = InspectModel(directory);
  ASSERT_TRUE(tied.ok()) << tied.status();
  const int64_t parameters = tied->json["parameters"].get<int64_t>();
  EXPECT_EQ(tied->json["bytes"], 4 * parameters);
  EXPECT_EQ(tied->json["model"]["tied_embeddings"], true);
  EXPECT_EQ(tied->json["model"]["heads"], 4);
  EXPECT_EQ(tied->json["model"]["kv_heads"], 2);
  EXPECT_EQ(tied->json["model"]["head_dim"], 2);
  EXPECT_EQ(tied->json["model"]["layers"], 2);
  EXPECT_EQ(tied->json["model"]["vocabulary"], 11);
  EXPECT_EQ(tied->json["model"]["hidden"], 8);
  EXPECT_EQ(tied->json["model"]["max_positions"], 32);
  // Weights that are not there change nothing.
  std::filesystem::remove(directory + "/model.safetensors");
  const auto bare = InspectModel(directory);
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->json["parameters"], parameters);
  EXPECT_EQ(bare->json["bytes"], 0);
}

TEST(InspectModelTest, RefusesWhatTrainingWould) {
  EXPECT_FALSE(InspectModel("/nowhere").ok());
  const std::string directory = FreshDirectory("model");
  WriteSmallModel(directory, "llama", false, "F32", [](auto& tensors) { tensors.pop_back(); });
  EXPECT_THAT(std::string(InspectModel(directory).status().message()),
              HasSubstr("\"lm_head.weight\" is missing"));
}

}  // namespace
}  // namespace megatrain
