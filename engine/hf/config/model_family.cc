#include "engine/hf/config/model_family.h"

#include <map>

namespace megatrain {
namespace {

// A function's static is there before the first registration, in whatever order files come.
std::map<std::string, ModelFamily>& Families() {
  static auto& families = *new std::map<std::string, ModelFamily>();
  return families;
}

}  // namespace

const ModelFamily* FindModelFamily(const std::string& model_type) {
  const auto found = Families().find(model_type);
  return found == Families().end() ? nullptr : &found->second;
}

std::vector<std::string> ModelFamilyNames() {
  std::vector<std::string> names;
  for (const auto& [name, family] : Families()) names.push_back(name);
  return names;
}

ModelFamilyRegistration::ModelFamilyRegistration(const ModelFamily& family) {
  Families().emplace(family.model_type, family);
}

}  // namespace megatrain
