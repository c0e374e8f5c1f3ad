// Named models that `init` makes: small Llamas to try things with, and the published shapes.
#ifndef MEGATRAIN_ENGINE_HF_PRESETS_H_
#define MEGATRAIN_ENGINE_HF_PRESETS_H_

#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace megatrain {

struct Preset {
  std::string name;
  DType dtype = DType::kBF16;    // of the weights on disk
  bool bytes_tokenizer = false;  // its tokenizer files are written; else there are none
  std::string config_json;       // the whole config.json
};

// All of them, in the order of `init --help`.
std::vector<Preset> Presets();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_PRESETS_H_
