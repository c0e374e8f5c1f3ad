// The arguments of the kernels for mixtures of experts. The conventions are those of kernel_args.h.
//
// A token goes to `chosen` of `experts` experts. An assignment is a pair of a token and one of its
// experts: the j-th choice of token t, counted from 0, is assignment t * chosen + j. The rows are
// the assignments sorted by expert and then by token, as SortAssignments sorts them. So an expert's
// rows are adjacent, and a call works on a range of rows [first, first + rows). A token's sum over
// its experts is added up one row after another, in the order of rows. Therefore it has the same
// bits whatever ranges the rows are cut into.
#ifndef MEGATRAIN_ENGINE_DEVICE_EXPERT_ARGS_H_
#define MEGATRAIN_ENGINE_DEVICE_EXPERT_ARGS_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

// The function that makes weights of logits.
enum class RouterScores {
  kSoftmax,          // the softmax of all logits
  kSoftmaxOfChosen,  // the choice goes by logits; the softmax is of the chosen logits (gpt-oss)
  kSigmoid,          // the sigmoid of each logit
};

// Chooses the experts of each token and computes their weights (Shazeer 2017; DeepSeek-V3 2024).
//
// The scores s are softmax(logits), sigmoid(logits) or, for kSoftmaxOfChosen, the logits. The
// choice goes by c = s + correction:
//   1. With chosen_groups < groups, only the experts of the chosen_groups best groups remain. A
//   group has experts / groups adjacent experts (REQUIRES: no remainder). The best groups have the
//   largest sum of their two largest c (or the largest c, if a group has one expert).
//   2. Of the experts that remain, the `chosen` ones with the largest c are chosen. REQUIRES: at
//   least `chosen` experts remain.
// Among equal experts or groups the lower index goes first. A c that is not a number counts as the
// lowest, so that the choice is always valid.
//
// The weight of a chosen expert is
//   1. s, or for kSoftmaxOfChosen the softmax over the chosen logits;
//   2. with `normalized`, divided by the sum over the chosen (plus 1e-20 for kSigmoid);
//   3. times `scale`, and times the expert's element of expert_scales.
// If a logit of a token is NaN, all weights and the entropy of the token are NaN. A GPU returns
// InvalidArgument if experts + groups is more than 12,288.
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

// Computes the gradient by the logits from the gradient by the weights, with the choice taken as
// constant. `forward` has the inputs and results of Route. Its entropy is not used.
struct RouteBackwardArgs {
  RouteArgs forward;
  const float* dweights = nullptr;  // [tokens, chosen]
  // [experts]: the gradient of the auxiliary loss by softmax(logits), the same for every token.
  // Its contribution to dlogits is added. Null: there is none.
  const float* dprobabilities = nullptr;
  DType dtype = DType::kF32;  // of dlogits
  void* dlogits = nullptr;    // T [tokens, experts], written
  // [tokens, experts], written unless null: each token's part of the gradient by expert_scales, 0
  // for experts that the token does not go to.
  float* dexpert_scales = nullptr;
};

// Computes probability[e] += the sum over tokens of softmax(logits)[e], for the auxiliary loss
// (Fedus 2021). Each softmax is FP32, and the sum over tokens is FP64.
struct RouterSumsArgs {
  int64_t tokens = 0, experts = 0;
  const float* logits = nullptr;  // [tokens, experts]
  double* probability = nullptr;  // [experts]
};

// Sorts the assignments by (expert, token).
struct SortAssignmentsArgs {
  int64_t tokens = 0, experts = 0, chosen = 0;  // tokens * chosen < 2^31
  const int32_t* choice = nullptr;              // [tokens, chosen]; a token's experts differ
  int32_t* offsets = nullptr;  // [experts + 1]: the first row of each expert, then tokens * chosen
  int32_t* assignments = nullptr;  // [tokens * chosen]: the assignment of each row
  int32_t* rows = nullptr;         // [tokens, chosen]: a token's rows, ascending
};

// The range of rows [first, first + rows). The token of a row is its assignment / chosen.
struct ExpertRows {
  int64_t first = 0, rows = 0;
  int64_t tokens = 0, chosen = 0;
  const int32_t* assignments = nullptr;  // as in SortAssignmentsArgs, from row 0
  const int32_t* token_rows = nullptr;   // [tokens, chosen], SortAssignmentsArgs::rows
};

// Computes out[r] = x[the token of row first + r] for r < rows, times the weight of the row's
// assignment if there are weights, and rounded once.
struct GatherRowsArgs {
  DType dtype = DType::kF32;
  int64_t width = 0;
  ExpertRows range;
  const void* x = nullptr;         // T [tokens, width]
  const float* weights = nullptr;  // [tokens, chosen], in the order of assignments; null: all are 1
  void* out = nullptr;             // T [rows, width]
};

// Computes sum[the token of row first + r] += x[r] for r < rows, times the weight of the row's
// assignment if there are weights, in FP32 and in the order of rows.
struct AddRowsArgs {
  DType dtype = DType::kF32;
  int64_t width = 0;
  ExpertRows range;
  const void* x = nullptr;         // T [rows, width]
  const float* weights = nullptr;  // as in GatherRowsArgs
  float* sum = nullptr;            // [tokens, width]
};

// Computes for each row r the gradient by the weight of its assignment: dweights[assignment] =
// sum_i dout[r, i] * out[r, i] (+ sum_i dy[r, i] * bias[expert, i]), in FP32. Then computes dout[r]
// *= that weight, rounded once. `out` is the input of an expert's last product, and `dout` the
// gradient by it as if all weights were 1. With the last product's weight W and the gradient dy by
// its result, dy . (W out + bias) = (W^T dy) . out + dy . bias gives the formula.
struct WeighRowsArgs {
  DType dtype = DType::kF32;
  int64_t width = 0;
  ExpertRows range;
  const float* weights = nullptr;  // [tokens, chosen]
  const void* out = nullptr;       // T [rows, width]
  void* dout = nullptr;            // T [rows, width]
  float* dweights = nullptr;       // [tokens, chosen]; those of these rows are written
  // T [experts from first_expert on, bias_width]: the last product's bias. Null: there is none, and
  // the members below are not read.
  const void* bias = nullptr;
  int64_t bias_width = 0;
  const void* dy = nullptr;         // T [rows, bias_width]
  const int32_t* choice = nullptr;  // [tokens, chosen]
  int64_t first_expert = 0;         // the expert of the first row of `bias`
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_EXPERT_ARGS_H_
