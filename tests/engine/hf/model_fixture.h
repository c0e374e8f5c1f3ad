// Small models in memory and on disk for tests of model files.
#ifndef MEGATRAIN_TESTS_ENGINE_HF_MODEL_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_HF_MODEL_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/dtype.h"
#include "engine/hf/safetensors.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"
#include "tests/support/test_directory.h"

namespace megatrain {

// A tile with its block, every byte 0xcd at first.
class OwnedTile {
 public:
  OwnedTile(const TileLayout& layout, DType weight_dtype);
  const Tile& tile() const { return tile_; }

 private:
  std::vector<char> block_;
  Tile tile_;
};

// Checks that `fill` gives the parts of a tile, at random cuts, the bits that it gives the whole.
void ExpectPartsOfTheWhole(const TileLayout& layout, DType weight_dtype,
                           absl::FunctionRef<void(const Tile&)> fill);

// The value that tests give to element i of a tensor; different for every tensor and element.
float TestValue(const std::string& tensor, int64_t i);

// Two layers, hidden 8, vocabulary 11.
ModelDescription SmallConfig(const std::string& family, bool tied);
std::string SmallConfigJson(const std::string& family, bool tied);

// Writes config.json and model.safetensors with TestValue everywhere. `change` may edit the
// declarations before they are written; data is made for what they then say.
void WriteSmallModel(const std::string& directory, const std::string& family, bool tied,
                     const std::string& dtype,
                     const std::function<void(std::vector<SafetensorsDeclaration>&)>& change = {});

// One file with TestValue in every tensor (F32, F16, BF16; zeros in others).
void WriteTestTensors(const std::string& path, const std::vector<SafetensorsDeclaration>& tensors);

// `value` as FP32 -> F16 -> bits; exact for TestValue.
uint16_t TestValueToF16(float value);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_HF_MODEL_FIXTURE_H_
