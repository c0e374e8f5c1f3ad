// Reads a Hugging Face config.json into a ModelDescription.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Parses and checks a config.json. Both forms of the RoPE settings are understood: `rope_theta`
// with `rope_scaling`, and `rope_parameters` of transformers 5. `path` begins every message.
//
// Returns InvalidArgument for broken JSON and for a model that CheckModel refuses. Returns it too,
// naming the key, if a key is missing, of a wrong type, out of range or unknown, or asks for
// something that the engine does not compute. Returns Unimplemented, listing the model_types that
// are supported, for any other.
//
// A wrapper's text_config is read as the text model's own config.json, except that
// tie_word_embeddings is read beside it and WrapperFamily::unread_text_keys are passed over. Errors
// within it name the key as "text_config.KEY". The result has the names on disk that published
// models of the wrapper have.
absl::StatusOr<ModelDescription> ParseModelDescription(std::string_view json,
                                                       const std::string& path);

// Reads `directory`/config.json. If weights are there too, their tensors' names complete the
// description:
// - a wrapper's prefixes and carried tensors (CompleteWrapper);
// - the prefix of a text model that was taken out of a wrapper (PrefixOutOfWrapper);
// - whether experts lie apart or stacked (SettleExpertNames).
//
// If weights files of the directory are missing, the names are read from the first directory of
// `same_names` that has all of its files. So a run can go on from a checkpoint when the weights
// that it began with are gone, unless they are a wrapper's, whose carried tensors it still needs.
//
// Returns NotFound if there is no such directory or file, OutOfRange if the file is longer than
// kConfigBytesMax, the errors of reading, and those of ParseModelDescription, CompleteWrapper,
// FindHfWeightFiles and SafetensorsReader::Open. Missing weights are no error.
absl::StatusOr<ModelDescription> ReadModelDescription(
    const std::string& directory, FileSystem* files = PosixFileSystem(),
    const std::vector<std::string>& same_names = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_JSON_H_
