// The model families that config.json may name, and how one is added: a file in engine/hf/families
// that describes it and registers itself.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_

#include <string>
#include <vector>

#include "engine/hf/config/json_fields.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Tensors that files of a family may have although neither training nor transformers reads them.
// All others that the description does not name are errors.
struct IgnoredTensors {
  std::string what = "";    // for people: "layers that predict further tokens"; "": there are none
  std::string prefix = "";  // of their names on disk: "mtp."; "" for none
  // They are those of layers behind the model's last one, if the layer has a tensor of this name:
  // "eh_proj.weight". "" for none.
  std::string later_layers_with = "";
  // They are projections and norms of keys and values, in layers that use those of another.
  bool unused_keys = false;
  // The key of config.json that counts them. What is written has none, and says 0 there.
  std::string count_key = "";
};

struct ModelFamily {
  const char* model_type;    // as in config.json: "llama"
  const char* architecture;  // transformers' class: "LlamaForCausalLM"
  // Reads the keys that say what the model computes. Errors go to fields.status(); the result then
  // does not matter. The keys that all families share (config_json.cc) are read by the caller.
  ModelDescription (*describe)(JsonFields& fields);
  IgnoredTensors ignored = {};
};

// Returns null if there is none.
const ModelFamily* FindModelFamily(const std::string& model_type);
// Returns the model_type of every family in alphabetical order.
std::vector<std::string> ModelFamilyNames();

// Adds a family when it is constructed. Each file in engine/hf/families has one at namespace scope.
class ModelFamilyRegistration {
 public:
  explicit ModelFamilyRegistration(const ModelFamily& family);
  ModelFamilyRegistration(const ModelFamilyRegistration&) = delete;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_
