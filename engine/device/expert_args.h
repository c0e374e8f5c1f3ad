// The arguments of the kernels for mixtures of experts. The conventions are those of kernel_args.h.
//
// A token goes to `chosen` of `experts` experts. An assignment is a pair of token and expert: the
// j-th choice of token t is assignment t * chosen + j. The assignments in the order of their
// experts, and of their tokens for one expert, are the rows. SortAssignments computes this order,
// and experts work on ranges of rows [first, first + rows) that it makes contiguous. A token's sum
// over its experts is added up in the order of rows, one after another, so that no cut of the rows
// changes a bit.
#ifndef MEGATRAIN_ENGINE_DEVICE_EXPERT_ARGS_H_
#define MEGATRAIN_ENGINE_DEVICE_EXPERT_ARGS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

enum class RouterScores {
  kSoftmax,          // of all logits
  kSoftmaxOfChosen,  // of the chosen experts' logits, which are chosen by logits (gpt-oss)
  kSigmoid,          // of each logit
};

// Chooses the experts of each token and computes their weights (Shazeer 2017; DeepSeek-V3 2024).
//
// The scores s are softmax(logits), sigmoid(logits) or, for kSoftmaxOfChosen, the logits. The
// choice goes by c = s + correction:
//   1. With chosen_groups < groups, only the experts of the chosen_groups best groups remain. A
//   group has experts / groups neighbours. The best groups have the largest sum of their two
//   largest c (or of the single c).
//   2. Of the experts that remain, the `chosen` ones with the largest c are chosen. At least as
//   many must remain.
// Among equal experts or groups the lower index goes first. A c that is not a number counts as the
// lowest, so that the choice is always valid.
//
// The weight of a chosen expert is
//   1. s, or for kSoftmaxOfChosen the softmax over the chosen logits;
//   2. with `normalized` divided by the sum over the chosen (plus 1e-20 for kSigmoid);
//   3. times `scale`, and times the expert's element of expert_scales.
// If a logit of a token is not a number, none of the token's weights is.
struct RouteArgs {
  int64_t tokens = 0, experts = 0, chosen = 0;
  RouterScores scores = RouterScores::kSoftmax;
  bool normalized = true;
  float scale = 1;
  int64_t groups = 1, chosen_groups = 1;
  const float* logits = nullptr;        // [tokens, experts]
  const float* correction = nullptr;    // [experts], or null: all are 0
  DType dtype = DType::kF32;            // of expert_scales
  const void* expert_scales = nullptr;  // T [experts], or null: all are 1
  int32_t* choice = nullptr;  // [tokens, chosen], written: the experts, the largest c first
  float* weights = nullptr;   // [tokens, chosen], written
  // [tokens], written unless null: the entropy in nats of softmax(logits), or for kSigmoid of the
  // scores divided by their sum.
  float* entropy = nullptr;
};

// Computes the gradient by the logits from the gradient by the weights; the choice is a constant.
// `forward` has the inputs and results of Route; its entropy is not used.
struct RouteBackwardArgs {
  RouteArgs forward;
  const float* dweights = nullptr;  // [tokens, chosen]
  // [experts]: a gradient by softmax(logits) of every token that is added to the other (the
  // auxiliary loss); null: none.
  const float* dprobabilities = nullptr;
  DType dtype = DType::kF32;  // of dlogits
  void* dlogits = nullptr;    // T [tokens, experts], written
  // [tokens, experts], written unless null: the gradient by expert_scales that comes from each
  // token, 0 for experts that it does not go to.
  float* dexpert_scales = nullptr;
};

// Adds to sums over tokens, for the auxiliary loss (Fedus 2021): probability[e] += the sum of
// softmax(logits)[e], in FP64.
struct RouterSumsArgs {
  int64_t tokens = 0, experts = 0;
  const float* logits = nullptr;  // [tokens, experts]
  double* probability = nullptr;  // [experts]
};

// Sorts the assignments by (expert, token).
struct SortAssignmentsArgs {
  int64_t tokens = 0, experts = 0, chosen = 0;  // tokens * chosen < 2^31
  const int32_t* choice = nullptr;              // [tokens, chosen]; a token's experts differ
  int32_t* offsets = nullptr;                   // [experts + 1]: the first row of each expert
  int32_t* assignments = nullptr;               // [tokens * chosen]: the assignment of each row
  int32_t* rows = nullptr;                      // [tokens, chosen]: a token's rows, ascending
};

// Rows [first, first + rows) of the sorted assignments. The token of a row is assignment / chosen.
struct ExpertRows {
  int64_t first = 0, rows = 0;
  int64_t tokens = 0, chosen = 0;
  const int32_t* assignments = nullptr;  // as in SortAssignmentsArgs, from row 0
  const int32_t* token_rows = nullptr;   // [tokens, chosen], SortAssignmentsArgs::rows
};

// out[r] = x[token of row first + r] (* its weight, rounded once)
struct GatherRowsArgs {
  DType dtype = DType::kF32;
  int64_t width = 0;
  ExpertRows range;
  const void* x = nullptr;         // T [tokens, width]
  const float* weights = nullptr;  // [tokens, chosen], in the order of assignments; null: all are 1
  void* out = nullptr;             // T [rows, width]
};

// sum[token of row] += (its weight *) x[row], in FP32 and in the order of rows.
struct AddRowsArgs {
  DType dtype = DType::kF32;
  int64_t width = 0;
  ExpertRows range;
  const void* x = nullptr;         // T [rows, width]
  const float* weights = nullptr;  // [tokens, chosen]; null: all are 1
  float* sum = nullptr;            // [tokens, width]
};

// For each row r: dweights[assignment] = sum_i dout[r, i] * out[r, i] (+ sum_i dy[r, i] *
// bias[expert, i]), in FP32; then dout[r] *= the assignment's weight, rounded once. `out` is what
// the last product of an expert takes, `dout` the gradient by it if all weights were 1. This is the
// gradient by the weights of the sum, because dy . (W out + bias) = (W^T dy) . out + dy . bias.
struct WeighRowsArgs {
  DType dtype = DType::kF32;
  int64_t width = 0;
  ExpertRows range;
  const float* weights = nullptr;  // [tokens, chosen]
  const void* out = nullptr;       // T [rows, width]
  void* dout = nullptr;            // T [rows, width]
  float* dweights = nullptr;       // [tokens, chosen]; those of these rows are written
  // The last product's bias; null: none, then the rest is not read.
  const void* bias = nullptr;  // T [experts from first_expert on, bias_width]
  int64_t bias_width = 0;
  const void* dy = nullptr;         // T [rows, bias_width]
  const int32_t* choice = nullptr;  // [tokens, chosen]
  int64_t first_expert = 0;         // the expert whose bias comes first
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_EXPERT_ARGS_H_
