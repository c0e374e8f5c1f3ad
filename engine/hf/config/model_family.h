// The model families that config.json may name, and how one is added: a file in engine/hf/families
// that describes it and registers itself.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_MODEL_FAMILY_H_

#include <string>
#include <vector>

#include "engine/hf/config/json_fields.h"
#include "engine/model/model_description.h"

namespace megatrain {

struct ModelFamily {
  const char* model_type;    // as in config.json: "llama"
  const char* architecture;  // transformers' class: "LlamaForCausalLM"
  // Reads the keys that say what the model computes. Errors go to fields.status(); the result then
  // does not matter. The keys that all families share (config_json.cc) are read by the caller.
  ModelDescription (*describe)(JsonFields& fields);
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
