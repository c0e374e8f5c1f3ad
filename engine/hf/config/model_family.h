// The model families that config.json may name, and how one is added: a file in engine/hf/families
// that describes it and registers itself.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_

#include <string>
#include <vector>

#include "engine/hf/config/json_fields.h"
#include "engine/model/model_description.h"

namespace megatrain {

// Tensors that files of a family may have although neither training nor transformers reads them. A
// tensor is ignored if `prefix`, `later_layers_with` or `unused_keys` applies to it. Other tensors
// that the description does not name are errors.
struct IgnoredTensors {
  std::string what = "";  // for people: "layers that predict further tokens"; "": none are ignored
  std::string prefix = "";  // ignored names on disk begin so: "mtp."; "" for none
  // A tensor is ignored if it belongs to a layer behind the model's last one and that layer has a
  // tensor of this name: "eh_proj.weight". "" for none.
  std::string later_layers_with = "";
  // If true, the projections and norms of keys and values are ignored in layers that use those of
  // another layer.
  bool unused_keys = false;
  // The key of config.json that says how many layers of ignored tensors there are; "" for none.
  // Exports have no such tensors, and set the key to 0.
  std::string count_key = "";
};

// A reader for the config.json of one model_type.
struct ModelFamily {
  // Both texts must live as long as the process.
  const char* model_type;    // as in config.json: "llama"
  const char* architecture;  // transformers' class: "LlamaForCausalLM"
  // Reads the keys that say what the model computes. Errors go to fields.status(); the result is
  // then of no use. The caller reads the keys that all families share (config_json.cc).
  ModelDescription (*describe)(JsonFields& fields);
  IgnoredTensors ignored = {};
};

// Returns the family, valid as long as the process, or null if there is none of that model_type.
const ModelFamily* FindModelFamily(const std::string& model_type);
// Returns the model_type of every family in alphabetical order.
std::vector<std::string> ModelFamilyNames();

// Adds a copy of `family` when it is constructed, unless there is one of that model_type. Each file
// in engine/hf/families has such an object at namespace scope. REQUIRES: no other thread runs a
// function of this header during the construction.
class ModelFamilyRegistration {
 public:
  explicit ModelFamilyRegistration(const ModelFamily& family);
  ModelFamilyRegistration(const ModelFamilyRegistration&) = delete;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_
