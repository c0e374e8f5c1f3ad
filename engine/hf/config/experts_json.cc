// ReadExperts, ReadSparseLayers, SetExperts and SetSigmoidExperts (config_readers.h).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
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

// Reads n_group and topk_group: the groups that experts are in, and those that may be chosen from.
void ReadExpertGroups(JsonFields& fields, const SigmoidExpertsDefaults& defaults,
                      ExpertsDescription& experts) {
  const int64_t groups = fields.Integer("n_group", 1, kExpertsMax, defaults.groups);
  const int64_t chosen = fields.Integer("topk_group", 1, kExpertsMax, defaults.chosen_groups);
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

std::vector<bool> ReadSparseLayers(JsonFields& fields, int64_t layers) {
  const int64_t step = fields.Integer("decoder_sparse_step", 1, kLayersMax, 1);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int64_t i = 0; i < layers; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
  const nlohmann::json* const dense = fields.Find("mlp_only_layers");
  if (dense == nullptr) return sparse;
  if (!dense->is_array()) {
    fields.Refuse("mlp_only_layers",
                  absl::StrCat("must be a list of layers' numbers, not ", DescribeJson(*dense)));
    return sparse;
  }
  for (const nlohmann::json& number : *dense) {
    const int64_t layer = number.is_number_integer() ? number.get<int64_t>() : -1;
    if (layer < 0 || layer >= layers) {
      fields.Refuse("mlp_only_layers", absl::StrCat("must be integers from 0 to ", layers - 1,
                                                    ", not ", DescribeJson(number)));
      return sparse;
    }
    sparse[static_cast<size_t>(layer)] = false;
  }
  return sparse;
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

void SetSigmoidExperts(JsonFields& fields, const SigmoidExpertsDefaults& defaults,
                       ModelDescription& model) {
  ExpertsDescription experts = ReadExperts(fields, model,
                                           {.count = defaults.count,
                                            .chosen = defaults.chosen,
                                            .intermediate = defaults.intermediate,
                                            .count_key = "n_routed_experts",
                                            .count_alias = "num_local_experts",
                                            .auxiliary_loss = false});
  ReadExpertGroups(fields, defaults, experts);
  experts.router.scores = RouterScores::kSigmoid;
  experts.router.normalized = fields.Boolean("norm_topk_prob", true);
  experts.router.scale = fields.Number("routed_scaling_factor", 1e-6, 1e6, defaults.scale);
  experts.router.correction = true;
  const int64_t shared = fields.Integer("n_shared_experts", 1, kExpertsMax, 1);
  experts.shared_intermediate = shared * experts.intermediate;
  if (experts.shared_intermediate > kIntermediateMax) {
    fields.Refuse("n_shared_experts",
                  absl::StrCat(shared, " of moe_intermediate_size = ", experts.intermediate,
                               " are more than ", kIntermediateMax, " together"));
  }
  const int64_t dense = fields.Integer("first_k_dense_replace", 0, model.layer_count(),
                                       std::min(defaults.dense_layers, model.layer_count()));
  SetExperts(
      fields, "n_routed_experts", experts, [&](int64_t layer) { return layer >= dense; }, model);
  // Layers that predict further tokens come after the decoder, which does without them.
  (void)fields.Integer("num_nextn_predict_layers", 0, kLayersMax, 1);
  (void)fields.Integer("num_mtp_layers", 0, kLayersMax, 1);
}

}  // namespace megatrain
