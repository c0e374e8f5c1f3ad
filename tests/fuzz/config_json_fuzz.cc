// The input is a config.json, or the index of a sharded model. A configuration that is accepted
// must give a layout and finite rotary tables, and survive having its dtype rewritten.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/model/model_layout.h"
#include "engine/model/rope.h"

namespace megatrain {
namespace {

void Check(bool condition) {
  if (!condition) __builtin_trap();
}

void TestOne(std::string_view text) {
  const auto index = ParseHfIndex(text, "input");
  if (index.ok()) Check(ParseHfIndex(MakeHfIndex(*index, 1), "again").ok());

  const auto config = ParseModelDescription(text, "input");
  if (!config.ok()) {
    Check(!config.status().message().empty());
    return;
  }
  for (const RopeConfig& rope : config->ropes) {
    for (const float frequency : RopeInverseFrequencies(rope, config->max_positions)) {
      Check(std::isfinite(frequency));
    }
    Check(std::isfinite(RopeAttentionFactor(rope)));
  }
  Check(!DescribeModel(*config).empty());
  if (config->layer_count() <= 64) {
    const ModelLayout layout = BuildModelLayout(*config);
    Check(layout.parameters > 0 && layout.tile_elements_max > 0);
  }
  const auto rewritten = RewriteConfigDType(text, DType::kBF16, "input");
  Check(rewritten.ok() && ParseModelDescription(*rewritten, "rewritten").ok());
}

}  // namespace
}  // namespace megatrain

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  megatrain::TestOne(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
