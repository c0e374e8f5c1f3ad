// ReadExperts, ReadExpertGroups and SetExperts (config_readers.h).
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/hf/config/config_readers.h"

namespace megatrain {
namespace {

int64_t ReadSize(JsonFields& fields, const char* key, int64_t most, int64_t absent) {
  return absent > 0 ? fields.Integer(key, 1, most, absent) : fields.RequiredInteger(key, 1, most);
}

int64_t ReadCount(JsonFields& fields, const ExpertsDefaults& defaults) {
  const int64_t count = ReadSize(fields, defaults.count_key, kExpertsMax, defaults.count);
  if (defaults.count_alias == nullptr) return count;
  if (fields.Find(defaults.count_key) == nullptr) {
    return fields.Integer(defaults.count_alias, 1, kExpertsMax, defaults.count);
  }
  fields.MustBe(defaults.count_alias, count,
                absl::StrCat("it is another name of ", defaults.count_key, ", which is ", count));
  return count;
}

}  // namespace

ExpertsDescription ReadExperts(JsonFields& fields, const ModelDescription& model,
                               const ExpertsDefaults& defaults) {
  ExpertsDescription experts;
  experts.count = ReadCount(fields, defaults);
  experts.chosen = ReadSize(fields, defaults.chosen_key, kChosenExpertsMax, defaults.chosen);
  if (experts.chosen > experts.count) {
    fields.Refuse(defaults.chosen_key, absl::StrCat(experts.chosen, " is more than the ",
                                                    experts.count, " experts that there are"));
  }
  experts.intermediate =
      ReadSize(fields, defaults.intermediate_key, kIntermediateMax, defaults.intermediate);
  if (experts.count * experts.intermediate > kIntermediateMax) {
    fields.Refuse(defaults.intermediate_key,
                  absl::StrCat(experts.intermediate, " for each of ", experts.count,
                               " experts is more than ", kIntermediateMax, " for all of a layer"));
  }
  experts.activation = model.layers[0].feed_forward.activation;
  experts.experts_per_tile = ExpertsPerTile(experts.count, model.hidden, experts.intermediate);
  const bool has_auxiliary_loss = fields.Boolean("output_router_logits", false);
  if (defaults.auxiliary_loss) {
    const double coefficient = fields.Number("router_aux_loss_coef", 0.0, 1e6, 0.001);
    if (has_auxiliary_loss) experts.auxiliary_loss = coefficient;
  }
  return experts;
}

void ReadExpertGroups(JsonFields& fields, ExpertsDescription& experts) {
  const int64_t groups = fields.Integer("n_group", 1, kExpertsMax, 1);
  const int64_t chosen = fields.Integer("topk_group", 1, kExpertsMax, 1);
  if (experts.count % groups != 0) {
    fields.Refuse("n_group", absl::StrCat(groups, " does not divide the ", experts.count,
                                          " experts into groups of equal size"));
  }
  if (chosen > groups) {
    fields.Refuse("topk_group", absl::StrCat(chosen, " is more than n_group = ", groups));
  }
  const int64_t remaining = experts.count / groups * chosen;
  if (experts.chosen > remaining) {
    fields.Refuse("num_experts_per_tok",
                  absl::StrCat(experts.chosen, " is more than the ", remaining,
                               " experts of topk_group = ", chosen, " groups"));
  }
  experts.router.groups = groups;
  experts.router.chosen_groups = chosen;
}

void SetExperts(JsonFields& fields, const char* key, const ExpertsDescription& experts,
                absl::FunctionRef<bool(int64_t layer)> sparse, ModelDescription& model,
                const JoinDescription* join) {
  int64_t all = 0;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    if (!sparse(i)) continue;
    LayerDescription& layer = model.layers[static_cast<size_t>(i)];
    layer.experts = experts;
    if (join != nullptr) {
      layer.join = *join;
    } else {
      layer.feed_forward = FeedForwardDescription();
    }
    all += experts.count;
  }
  if (all > kAllExpertsMax) {
    fields.Refuse(key, absl::StrCat(experts.count, " experts in each layer that has some are ", all,
                                    " together, more than ", kAllExpertsMax));
  }
}

}  // namespace megatrain
