#include "engine/hf/config/ignored_tensors.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/hf/config/model_family.h"

namespace megatrain {
namespace {

const IgnoredTensors& IgnoredBy(const ModelDescription& model) {
  static const auto& none = *new IgnoredTensors();
  const ModelFamily* const family = FindModelFamily(model.family);
  return family == nullptr ? none : family->ignored;
}

// A name's layer, and its beginning up to there: "model.layers.46.".
struct NamedLayer {
  int64_t layer = -1;  // -1: the name is of none
  std::string beginning;
};
NamedLayer LayerOf(const ModelDescription& model, const std::string& name) {
  const std::string layers = model.wrapper.OnDisk("model.layers.");
  if (!name.starts_with(layers)) return {};
  const size_t end = name.find('.', layers.size());
  int64_t layer = 0;
  if (end == std::string::npos ||
      !absl::SimpleAtoi(name.substr(layers.size(), end - layers.size()), &layer) || layer < 0) {
    return {};
  }
  return {layer, name.substr(0, end + 1)};
}

// Returns the beginning of a name up to its layer's number if the layer is behind the model's last
// one; else "".
std::string LaterLayer(const ModelDescription& model, const std::string& name) {
  const NamedLayer named = LayerOf(model, name);
  return named.layer >= model.layer_count() ? named.beginning : "";
}

// Returns the beginning of a name of keys or values, "model.layers.20.self_attn.k_", if the layer
// has none of its own; else "".
std::string UnusedKeys(const ModelDescription& model, const std::string& name) {
  const auto [layer, beginning] = LayerOf(model, name);
  if (layer < 0 || layer >= model.layer_count() ||
      model.layers[static_cast<size_t>(layer)].attention.projects_keys) {
    return "";
  }
  for (const char* part : {"self_attn.k_proj.", "self_attn.k_norm.", "self_attn.v_proj."}) {
    const std::string group = beginning + part;
    if (name.starts_with(group)) return group;
  }
  return "";
}

}  // namespace

std::map<std::string, std::string> FindIgnoredTensors(const ModelDescription& model,
                                                      const std::set<std::string>& names) {
  std::map<std::string, std::string> found;
  const IgnoredTensors& ignored = IgnoredBy(model);
  if (ignored.what.empty()) return found;
  for (const std::string& name : names) {
    if (model.wrapper.Carries(name)) continue;
    std::string group = ignored.prefix;
    if (group.empty() || !name.starts_with(group)) {
      group = ignored.later_layers_with.empty() ? "" : LaterLayer(model, name);
      if (!group.empty() && !names.contains(group + ignored.later_layers_with)) continue;
      if (group.empty() && ignored.unused_keys) group = UnusedKeys(model, name);
      if (group.empty()) continue;
    }
    found[name] = group + "*";
  }
  return found;
}

std::string DescribeIgnoredTensors(const ModelDescription& model,
                                   const std::set<std::string>& names) {
  const std::map<std::string, std::string> found = FindIgnoredTensors(model, names);
  if (found.empty()) return "";
  std::set<std::string> groups;
  for (const auto& [name, group] : found) groups.insert(group);
  return absl::StrCat(FormatCount(static_cast<int64_t>(found.size())), " tensors of ",
                      IgnoredBy(model).what, " (", absl::StrJoin(groups, ", "),
                      ") are not trained, and are not in checkpoints and exports");
}

}  // namespace megatrain
