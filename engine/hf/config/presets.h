// The presets of `megatraind init`: small Llamas for trials, and the shapes of published models.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_PRESETS_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_PRESETS_H_

#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace megatrain {

struct Preset {
  std::string name;
  DType dtype = DType::kBF16;    // the type of the weights on disk
  bool bytes_tokenizer = false;  // true: tokenizer files are written too
  std::string config_json;       // the whole config.json
};

// Returns all presets in the order of `init --help`.
std::vector<Preset> Presets();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_PRESETS_H_
