// Converts the text of a Hugging Face config.json to and from the engine's terms.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"
#include "engine/model/model_description.h"

namespace megatrain {

inline constexpr char kConfigFileName[] = "config.json";
// The largest file that is accepted. Ordinary ones have a few KB.
inline constexpr int64_t kConfigBytesMax = int64_t{4} << 20;

// Parses and checks a config.json. Both forms of the RoPE settings are understood: `rope_theta`
// with `rope_scaling`, and `rope_parameters` of transformers 5. `path` begins every message.
//
// Returns InvalidArgument, naming the key, if a key is missing, of a wrong type, out of range or
// unknown, or asks for something that the engine does not compute. Returns Unimplemented, listing
// the supported ones, for another model_type.
absl::StatusOr<ModelDescription> ParseModelDescription(std::string_view json,
                                                       const std::string& path);

// Reads `directory`/config.json. Returns NotFound if there is no such directory or file, OutOfRange
// if the file is longer than kConfigBytesMax, the errors of reading, and those of
// ParseModelDescription.
absl::StatusOr<ModelDescription> ReadModelDescription(const std::string& directory,
                                                      FileSystem* files = PosixFileSystem());

// Returns the text with its `dtype` and `torch_dtype`, or a new torch_dtype if it has neither, set
// to `weight_dtype`. All other keys and their order are kept. Returns InvalidArgument, beginning
// with `path`, if `json` is not an object.
absl::StatusOr<std::string> RewriteConfigDType(std::string_view json, DType weight_dtype,
                                               const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_
