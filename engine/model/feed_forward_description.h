// Describes what a layer does with each token by itself: a dense unit, or experts.
//
// Names on disk are those within the layer, and the names of matrices below are without the end
// ".weight": "mlp.gate" for "model.layers.0.mlp.gate.weight". Stacked and transposed experts have
// no such end, and RouterDescription::input_scale and expert_scales are whole names.
#ifndef MEGATRAIN_ENGINE_MODEL_FEED_FORWARD_DESCRIPTION_H_
#define MEGATRAIN_ENGINE_MODEL_FEED_FORWARD_DESCRIPTION_H_

#include <cstdint>
#include <string>

#include "engine/device/expert_args.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// A gated unit: down(activation(gate(x)) * up(x)).
struct FeedForwardDescription {
  int64_t intermediate = 0;
  GluActivation activation = GluActivation::kSilu;
  bool fused_gate_up = false;  // on disk mlp.gate_up_proj, else gate_proj and up_proj

  friend bool operator==(const FeedForwardDescription&, const FeedForwardDescription&) = default;
};

// How a router chooses experts for a token from its FP32 logits, one for each expert. Ties go to
// the lower index. RouteArgs (engine/device/expert_args.h) has the formulas.
struct RouterDescription {
  RouterScores scores = RouterScores::kSoftmax;
  bool normalized = true;         // the weights of the chosen are divided by their sum
  double scale = 1.0;             // a factor of the weights
  int64_t groups = 1;             // the number of groups of equal size that the experts form
  int64_t chosen_groups = 1;      // a token's experts come from at most this many groups
  bool bias = false;              // of the logits
  bool correction = false;        // a value for each expert; changes the choice, not the weights
  std::string name = "mlp.gate";  // on disk
  // The name on disk of a tensor [hidden], or "" if there is none. With it the logits are
  // hidden^-1/2 W (input_scale * norm(x)), where x is the residual stream and the norm has no
  // weight. Without it the router has the same input as the experts.
  std::string input_scale;
  // The name on disk of a tensor [experts], or "": further factors of the weights of the chosen.
  std::string expert_scales;

  friend bool operator==(const RouterDescription&, const RouterDescription&) = default;
};

// How the experts' matrices lie on disk. E experts, I intermediate, H hidden.
enum class ExpertTensors {
  kApart,    // of expert 0: experts.0.gate_proj [I, H], up_proj [I, H], down_proj [H, I]
  kStacked,  // experts.gate_up_proj [E, 2 I, H] (gate, then up), experts.down_proj [E, H, I]
  // experts.gate_up_proj [E, H, 2 I] (gate and up in turn), experts.down_proj [E, I, H] (gpt-oss)
  kTransposed,
};

// A mixture of experts: each token goes to `chosen` of `count` experts, which are gated units of
// their own, and the results are summed with the router's weights.
struct ExpertsDescription {
  int64_t count = 0;  // 0: the layer has a FeedForwardDescription's unit instead
  int64_t chosen = 0;
  int64_t intermediate = 0;
  GluActivation activation = GluActivation::kSilu;
  double limit = 0.0, slope = 0.0;  // for kClampedSilu (GluActivation)
  bool bias = false;                // both products have biases
  ExpertTensors tensors = ExpertTensors::kApart;
  std::string name = "mlp.experts";  // on disk, the prefix of the experts' names
  // On disk, the names of an expert's matrices where they lie apart.
  std::string gate_name = "gate_proj", up_name = "up_proj", down_name = "down_proj";
  RouterDescription router;
  // A unit that every token goes through beside the experts; 0: none.
  int64_t shared_intermediate = 0;
  std::string shared_name = "mlp.shared_experts";
  // The unit's result is multiplied by sigmoid(w x), with w [1, H] on disk as shared_name +
  // "_gate".
  bool shared_gate = false;
  // The number of experts whose weights are streamed as one tile (model_layout.h); the last tile
  // may have fewer. No result depends on it.
  int64_t experts_per_tile = 0;
  // The coefficient of the loss that spreads tokens evenly over experts, if the job does not give
  // one; 0: no such loss.
  double auxiliary_loss = 0.0;

  bool transposed() const { return tensors == ExpertTensors::kTransposed; }
  // Returns the number of tiles of the layer's experts. REQUIRES: experts_per_tile > 0 if there are
  // experts.
  int64_t tiles() const {
    return count == 0 ? 0 : (count + experts_per_tile - 1) / experts_per_tile;
  }
  friend bool operator==(const ExpertsDescription&, const ExpertsDescription&) = default;
};

// The most elements of the matrices of a tile's experts together, unless a single expert has more:
// 256 MiB of BF16. Biases are not counted.
inline constexpr int64_t kExpertTileElements = int64_t{128} << 20;
// Returns the number of experts of a tile, for ExpertsDescription::experts_per_tile. The layer has
// as few tiles as kExpertTileElements allows, and the experts are spread evenly over them, except
// that the last tile may have fewer. REQUIRES: all arguments are positive.
int64_t ExpertsPerTile(int64_t experts, int64_t hidden, int64_t intermediate);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_FEED_FORWARD_DESCRIPTION_H_
