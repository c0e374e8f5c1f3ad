// What a model directory, a checkpoint or a safetensors file holds, for people and programs.
#ifndef MEGATRAIN_ENGINE_INSPECT_MODEL_DESCRIPTION_H_
#define MEGATRAIN_ENGINE_INSPECT_MODEL_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/model/model_config.h"

namespace megatrain {

struct TensorDescription {
  std::string name;
  std::string dtype;  // "BF16"
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t bytes = 0;
};

struct ModelDescription {
  std::string kind;  // "model", "checkpoint" or "safetensors"
  std::string path;
  std::optional<ModelConfig> config;       // absent for a safetensors file
  int64_t parameters = 0;                  // of the model; for a file, all elements
  std::vector<std::string> files;          // that hold the tensors below
  std::vector<TensorDescription> tensors;  // empty if a directory has config.json alone
  int64_t tensor_bytes = 0;
  std::optional<CheckpointState> state;  // checkpoints only
  int64_t checkpoint_bytes = 0;          // of all its files
};

// A Hugging Face directory. If it has weights, they are checked against config.json.
absl::StatusOr<ModelDescription> DescribeModelDirectory(const std::string& directory);
// A checkpoint's manifest and model. Checksums are not compared.
absl::StatusOr<ModelDescription> DescribeCheckpoint(const std::string& checkpoint);
absl::StatusOr<ModelDescription> DescribeSafetensors(const std::string& path);

// With every tensor, or, for people, with the repetition of layers left out.
std::string ModelDescriptionJson(const ModelDescription& description);
std::string ModelDescriptionText(const ModelDescription& description);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_MODEL_DESCRIPTION_H_
