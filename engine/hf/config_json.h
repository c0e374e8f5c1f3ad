// config.json as ModelConfig. ReadModelConfig in hf_directory.h reads it from a directory.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/model/model_config.h"

namespace megatrain {

inline constexpr char kConfigFileName[] = "config.json";
// Real ones have a few KB.
inline constexpr int64_t kConfigBytesMax = int64_t{4} << 20;

// Both forms of RoPE settings are understood: `rope_theta` with `rope_scaling`, and transformers
// 5's `rope_parameters`. `path` begins every message. InvalidArgument names the key that is
// missing, of a wrong type or out of range, unknown, or asks for something the engine does not
// compute; Unimplemented names a model_type that is not supported, with the list of those that are.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json, const std::string& path);

// The same text with torch_dtype (or dtype, whichever is there) saying what the weights are;
// every other key and their order are kept.
absl::StatusOr<std::string> RewriteConfigDType(std::string_view json, DType weight_dtype,
                                               const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_
