// The descriptions of the reference models, as people see them. They are a reader's overview of the
// families; `megatraind inspect DIRECTORY` prints the same lines.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/hf/config_json.h"

namespace megatrain {
namespace {

TEST(Descriptions, AreThoseOfTheReferenceModels) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/models")) {
    const std::string directory = entry.path();
    if (!std::filesystem::exists(directory + "/config.json")) continue;
    SCOPED_TRACE(directory);
    const auto model = ReadModelDescription(directory);
    ASSERT_TRUE(model.ok()) << model.status();
    std::ifstream file(directory + "/description.txt");
    const std::string expected(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(DescribeModel(*model), expected);
    ++models;
  }
  EXPECT_GE(models, 18);
}

}  // namespace
}  // namespace megatrain
