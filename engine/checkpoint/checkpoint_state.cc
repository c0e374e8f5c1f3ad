#include "engine/checkpoint/checkpoint_state.h"

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/file.h"

namespace megatrain {
namespace {

// Adds what the names and shapes of the tensors do not tell. The cut into tiles is told by the
// tiles' tensors.
void AddExperts(const ExpertsDescription& e, std::string& text) {
  const RouterDescription& r = e.router;
  absl::StrAppendFormat(&text, " experts=%d,%d,%a,%a,%d,%a router=%d,%d,%a,%d,%d", e.chosen,
                        static_cast<int>(e.activation), e.limit, e.slope,
                        static_cast<int>(e.tensors), e.auxiliary_loss, static_cast<int>(r.scores),
                        r.normalized ? 1 : 0, r.scale, r.groups, r.chosen_groups);
}

void AddDeltaNet(const DeltaNetDescription& d, std::string& text) {
  absl::StrAppendFormat(&text, " delta_net=%d,%d,%d,%d,%d", d.key_heads, d.value_heads, d.key_dim,
                        d.value_dim, d.kernel);
}

// Returns what Llama's description of the same shapes does not have, "" if there is nothing. Names
// of tensors tell norms, biases and fusions.
std::string Peculiarities(const ModelDescription& m) {
  std::string text;
  if (m.wrapper.is_there()) {
    absl::StrAppend(&text, m.wrapper.family, " ", m.wrapper.model_prefix, " ",
                    m.wrapper.head_prefix, " ", m.wrapper.carried_tensors, " ",
                    m.wrapper.carried_bytes);
  }
  const auto add = [&](const char* name, double value, double usual) {
    if (value != usual) absl::StrAppendFormat(&text, " %s=%a", name, value);
  };
  add("one_plus_norms", m.one_plus_norms, false);
  add("embedding_scale", m.embedding_scale, 1.0);
  add("rounds_embedding_scale", m.rounds_embedding_scale, false);
  add("padding", static_cast<double>(m.padding_id), -1.0);
  add("logit_scale", m.logit_scale, 1.0);
  add("logit_softcap", m.logit_softcap, 0.0);
  const AttentionDescription& first = FirstAttention(m);
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const LayerDescription& layer = m.layers[i];
    const AttentionDescription& a = layer.attention;
    const std::string before = std::exchange(text, "");
    if (layer.attention_kind() == AttentionKind::kDeltaNet) AddDeltaNet(layer.delta_net, text);
    add("heads", static_cast<double>(a.heads), static_cast<double>(first.heads));
    add("kv_heads", static_cast<double>(a.kv_heads), static_cast<double>(first.kv_heads));
    add("head_dim", static_cast<double>(a.head_dim), static_cast<double>(first.head_dim));
    add("value_dim", static_cast<double>(a.value_dim()), static_cast<double>(a.head_dim));
    add("latent_epsilon", a.latent.norm_epsilon, 1e-6);
    if (a.heads > 0) {
      add("score_scale", a.score_scale, 1.0 / std::sqrt(static_cast<double>(a.head_dim)));
    }
    add("window", static_cast<double>(a.window), 0.0);
    add("softcap", a.softcap, 0.0);
    add("query_rope", a.query_rope, 0);
    add("key_rope", a.key_rope, 0);
    add("sinks", a.sinks, false);
    add("output_gate", a.output_gate, false);
    add("value_norm", a.value_norm, false);
    add("key_set", a.key_set, -1);
    add("per_layer_activation", static_cast<double>(layer.per_layer_input.activation),
        static_cast<double>(GluActivation::kGeluTanh));
    add("activation", static_cast<double>(layer.feed_forward.activation), 0.0);
    add("residual_scale", layer.residual_scale, 1.0);
    if (layer.experts.count > 0) AddExperts(layer.experts, text);
    const std::string own = std::exchange(text, before);
    if (!own.empty()) absl::StrAppend(&text, " layer ", i, ":", own);
  }
  for (size_t i = 0; i < m.ropes.size(); ++i) {
    const RopeConfig& rope = m.ropes[i];
    const std::string before = std::exchange(text, "");
    add("rotary_dim", static_cast<double>(rope.rotary_dim), static_cast<double>(first.head_dim));
    add("interleaved", rope.interleaved, false);
    add("truncate", rope.truncate, true);
    add("position_scale", rope.position_scale, 0.0);
    add("turning_pairs", static_cast<double>(rope.turning_pairs), 0.0);
    for (const double factor : rope.short_factors) add("short", factor, 0.0);
    for (const double factor : rope.long_factors) add("long", factor, 0.0);
    if (i > 0) {
      add("type", static_cast<double>(rope.type), -1.0);
      add("theta", rope.theta, 0.0);
      add("factor", rope.factor, 0.0);
      add("low", rope.low_frequency_factor, 0.0);
      add("high", rope.high_frequency_factor, 0.0);
      add("original", static_cast<double>(rope.original_positions), 0.0);
      add("fast", rope.beta_fast, 0.0);
      add("slow", rope.beta_slow, 0.0);
      add("attention", rope.attention_factor, 0.0);
    }
    const std::string own = std::exchange(text, before);
    if (!own.empty()) absl::StrAppend(&text, " rope ", i, ":", own);
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace

void Evaluations::Add(int64_t step, double loss) {
  last_step = step;
  last_loss = loss;
  ++since_best;
  if (!std::isfinite(loss) || (best_step > 0 && loss >= best_loss)) return;
  best_step = step;
  best_loss = loss;
  since_best = 0;
}

std::string ModelFingerprint(const ModelLayout& layout) {
  const ModelDescription& m = layout.model;
  const AttentionDescription& a = FirstAttention(m);
  const RopeConfig& rope = m.ropes.front();
  // %a prints a double exactly. Heads and kv_heads with equal products give equal shapes.
  std::string text = absl::StrFormat(
      "%s heads=%d kv_heads=%d head_dim=%d tied=%d epsilon=%a rope=%d,%a,%a,%a,%a,%d,%a,%a,%a\n",
      m.family, a.heads, a.kv_heads, a.head_dim, m.tied_embeddings ? 1 : 0, m.norm_epsilon,
      static_cast<int>(rope.type), rope.theta, rope.factor, rope.low_frequency_factor,
      rope.high_frequency_factor, rope.original_positions, rope.beta_fast, rope.beta_slow,
      rope.attention_factor);
  absl::StrAppend(&text, Peculiarities(m));
  // In the order in which nothing is frozen: that is another key's matter.
  ForEachTensor(BuildModelLayout(m), [&](int tile, const TensorSpec& tensor) {
    absl::StrAppend(&text, tile, " ", tensor.name, " [", absl::StrJoin(tensor.shape, ","), "]\n");
  });
  return HashBytes(text);
}

std::string NewRunName() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

std::string RunName(const CheckpointState& state) {
  if (!state.run.empty()) return state.run;
  std::string text = absl::StrCat(state.model_fingerprint, "\n", PrecisionName(state.weight_dtype),
                                  "\n", state.seed, "\n", state.data_fingerprint, "\n");
  for (const auto& [key, value] : state.spec) absl::StrAppend(&text, key, "=", value, "\n");
  return HashBytes(text);
}

}  // namespace megatrain
