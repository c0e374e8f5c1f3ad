// The descriptions of the reference models, as people see them. They are a reader's overview of the
// families; `megatraind inspect DIRECTORY` prints the same lines.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/hf/config_json.h"
#include "engine/model/model_layout.h"

namespace megatrain {
namespace {

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(Descriptions, AreThoseOfTheReferenceModels) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/models")) {
    const std::string directory = entry.path();
    if (!std::filesystem::exists(directory + "/config.json")) continue;
    SCOPED_TRACE(directory);
    const auto model = ReadModelDescription(directory);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(DescribeModel(*model), ReadBytes(directory + "/description.txt"));
    ++models;
  }
  EXPECT_GE(models, 23);
}

// Whatever the number of experts in a tile.
TEST(Layouts, HaveTheTensorsOfTheReferenceModels) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/models")) {
    const std::string directory = entry.path();
    if (!std::filesystem::exists(directory + "/config.json")) continue;
    SCOPED_TRACE(directory);
    auto model = ReadModelDescription(directory);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::string bytes = ReadBytes(directory + "/model.safetensors");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    std::map<std::string, std::vector<int64_t>> stored;
    const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__" || model->wrapper.Carries(name)) continue;
      stored[name] = tensor.at("shape").get<std::vector<int64_t>>();
    }
    for (const int64_t per_tile : {100, 3}) {
      for (LayerDescription& layer : model->layers) layer.experts.experts_per_tile = per_tile;
      std::map<std::string, std::vector<int64_t>> shapes;
      std::map<std::string, int64_t> begins;  // where the next part of a tensor begins
      ForEachTensor(BuildModelLayout(*model), [&](int, const TensorSpec& tensor) {
        shapes[model->wrapper.OnDisk(tensor.name)] = tensor.shape;
        EXPECT_EQ(tensor.source_begin, begins[tensor.name]) << tensor.name;
        begins[tensor.name] += tensor.columns > 0 ? tensor.columns : tensor.elements;
        const int64_t end = tensor.columns > 0 ? tensor.shape.back() : tensor.whole_elements();
        if (begins[tensor.name] == end) begins.erase(tensor.name);
      });
      EXPECT_EQ(shapes, stored);
      EXPECT_TRUE(begins.empty());
    }
  }
}

}  // namespace
}  // namespace megatrain
