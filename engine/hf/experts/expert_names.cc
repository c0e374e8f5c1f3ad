#include "engine/hf/experts/expert_names.h"

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

constexpr char kExpertsInMemory[] = "mlp.experts";
constexpr char kRouterInMemory[] = "mlp.gate";

}  // namespace

void SettleExpertNames(absl::FunctionRef<bool(const std::string& name)> has,
                       ModelDescription& model) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    ExpertsDescription& experts = model.layers[i].experts;
    if (experts.count == 0 || experts.transposed()) continue;
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const std::string names[] = {experts.name, kExpertsInMemory};
    for (const std::string& name : names) {
      const bool apart = has(absl::StrCat(layer, name, ".0.", experts.gate_name, ".weight"));
      if (!apart && !has(absl::StrCat(layer, name, ".gate_up_proj"))) continue;
      experts.name = name;
      experts.tensors = apart ? ExpertTensors::kApart : ExpertTensors::kStacked;
      break;
    }
    const auto has_router = [&](const std::string& name) {
      return has(absl::StrCat(layer, name, ".weight"));
    };
    if (!has_router(experts.router.name) && has_router(kRouterInMemory)) {
      experts.router.name = kRouterInMemory;
    }
  }
}

}  // namespace megatrain
