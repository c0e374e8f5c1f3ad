// Describes a Hugging Face model directory or a safetensors file, for people and for programs.
#ifndef MEGATRAIN_ENGINE_INSPECT_INSPECT_MODEL_H_
#define MEGATRAIN_ENGINE_INSPECT_INSPECT_MODEL_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// A description in two forms.
struct ModelReport {
  // The form for people: lines, each with its line feed. Tensors of layers and experts that are
  // like an earlier one are not listed, nor those that the wrapper carries or the family ignores.
  std::string text;
  // The form for programs, one object: path, kind (hf_directory or safetensors), files[],
  // parameters, bytes, dtypes{NAME: {tensors, parameters, bytes}}, tensors[{name, dtype, shape,
  // bytes, file}]. A directory also has model{family, hidden, layers, ...}. A wrapper has
  // model.wrapper{family, carried_tensors, carried_bytes}. model.ignored, if it is there, is a line
  // about tensors that the family ignores. The `parameters` of a directory follow from config.json,
  // and a tied matrix counts once; those of a file are all its elements. `files` is empty for a
  // directory without weights.
  nlohmann::ordered_json json;
};

// Describes `path`, a directory with config.json or a .safetensors file. Reads headers and no data,
// by PosixFileSystem. A directory without weights is no error. Returns the errors of
// ReadModelDescription, of FindHfWeightFiles (not its NotFound), of HfWeights::Open if the weights
// do not fit their config.json, and of SafetensorsReader::Open.
absl::StatusOr<ModelReport> InspectModel(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_INSPECT_MODEL_H_
