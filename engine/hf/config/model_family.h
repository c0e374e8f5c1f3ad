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
  std::string prefix = "";  // their names on disk begin so: "mtp."; "" for none
  // They belong to a layer behind the model's last one that has a tensor of this name:
  // "eh_proj.weight". "" for none.
  std::string later_layers_with = "";
  // If true: they are projections and norms of keys or values, in layers that use those of another.
  bool unused_keys = false;
  // The key of config.json that counts them; "" for none. Exports have no such tensors, and set it
  // to 0.
  std::string count_key = "";
};

struct ModelFamily {
  const char* model_type;    // as in config.json: "llama"
  const char* architecture;  // transformers' class: "LlamaForCausalLM"
  // Reads the keys that say what the model computes. Errors go to fields.status(); the result is
  // then of no use. The caller reads the keys that all families share (config_json.cc).
  ModelDescription (*describe)(JsonFields& fields);
  IgnoredTensors ignored = {};
};

// Returns null if there is none. Valid as long as the process.
const ModelFamily* FindModelFamily(const std::string& model_type);
// Returns the model_type of every family in alphabetical order.
std::vector<std::string> ModelFamilyNames();

// Adds a copy of `family` when it is constructed. Each file in engine/hf/families has one at
// namespace scope. REQUIRES: no other thread uses this file then.
class ModelFamilyRegistration {
 public:
  explicit ModelFamilyRegistration(const ModelFamily& family);
  ModelFamilyRegistration(const ModelFamilyRegistration&) = delete;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_
