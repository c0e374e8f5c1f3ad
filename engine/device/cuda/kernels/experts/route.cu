// The choice of experts and its gradient by the logits: a warp a token.
//
// Softmax that is normalised over the chosen is the softmax of the chosen logits alone. Both
// directions compute it so: no probability can be too small for FP32, and the logits of the others
// have no gradient at all.
#include <algorithm>

#include "engine/device/cuda/kernels/experts/router_parts.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/kernels/primitives.h"

namespace megatrain::cuda {
namespace {

constexpr int kWarpsMax = 4;
constexpr float kSigmoidEpsilon = 1e-20f;

// Returns true if weights are the softmax of the chosen logits.
__device__ inline bool IsSoftmaxOfChosen(const RouteArgs& args) {
  return args.scores == RouterScores::kSoftmaxOfChosen ||
         (args.scores == RouterScores::kSoftmax && args.normalized);
}

// Returns the expert's own factor of weights.
__device__ inline float ExpertScale(const RouteArgs& args, int64_t expert) {
  if (args.expert_scales == nullptr) return 1.0f;
  return args.dtype == DType::kF32 ? static_cast<const float*>(args.expert_scales)[expert]
                                   : ToFloat(static_cast<const Bf16*>(args.expert_scales)[expert]);
}

// A value and its place. The order is that of choice: larger values first, lower places among
// equals. A NaN is neither before nor behind anything.
struct Ranked {
  float value;
  int place;

  __device__ bool IsBefore(const Ranked& other) const {
    return value > other.value || (value == other.value && place < other.place);
  }
};

// Before every value.
__device__ inline Ranked Front() { return {INFINITY, -1}; }

// Returns the first of values [n] that comes after `last` to each thread of the warp.
__device__ inline Ranked FirstAfter(const Ranked& last, const float* values, int n, int lane) {
  Ranked first = {-INFINITY, n};
  for (int i = lane; i < n; i += kWarp) {
    const Ranked candidate = {values[i], i};
    if (last.IsBefore(candidate) && candidate.IsBefore(first)) first = candidate;
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Ranked other = {__shfl_xor_sync(~0u, first.value, step),
                          __shfl_xor_sync(~0u, first.place, step)};
    if (other.IsBefore(first)) first = other;
  }
  return first;
}

// Makes NaNs of the values of all experts whose group does not remain. `sums` [groups] is
// overwritten.
__device__ inline void RemoveGroups(const RouteArgs& args, float* values, float* sums, int lane) {
  const int groups = static_cast<int>(args.groups);
  const int size = static_cast<int>(args.experts) / groups;
  for (int g = lane; g < groups; g += kWarp) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      const float value = values[i];
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
    const float sum = size == 1 ? first : first + second;
    sums[g] = sum == sum ? sum : -INFINITY;
  }
  __syncwarp();
  Ranked last = Front();
  for (int64_t i = 0; i < args.chosen_groups; ++i) last = FirstAfter(last, sums, groups, lane);
  for (int e = lane; e < groups * size; e += kWarp) {
    const int g = e / size;
    if (last.IsBefore({sums[g], g})) values[e] = NAN;
  }
  __syncwarp();
}

// The entropy, from the sums of all logits or, for sigmoids, of the scores: with p = x / sum(x) it
// is log(sum(x)) - sum(x log(x)) / sum(x).
__device__ inline float EntropyOf(const RouteArgs& args, const float* logits,
                                  const SoftmaxSums& all, int lane) {
  float sums[2] = {};
  for (int64_t e = lane; e < args.experts; e += kWarp) {
    const bool is_sigmoid = args.scores == RouterScores::kSigmoid;
    const float x = is_sigmoid ? RouterSigmoid(logits[e]) : expf(logits[e] - all.largest);
    const float log = is_sigmoid ? logf(x) : logits[e] - all.largest;
    sums[0] += x;
    if (x != 0.0f) sums[1] += x * log;
  }
  TeamSums<kWarp>(sums, nullptr);
  return logf(sums[0]) - sums[1] / sums[0];
}

// Shared, for each warp: the values [experts] by which experts are chosen, and the groups' sums.
__global__ void __launch_bounds__(kWarpsMax* kWarp) RouteKernel(RouteArgs args, int warp_floats) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + warp;
  if (token >= args.tokens) return;
  const int experts = static_cast<int>(args.experts);
  const float* const logits = args.logits + token * args.experts;
  int32_t* const choice = args.choice + token * args.chosen;
  float* const weights = args.weights + token * args.chosen;
  float* const values = SharedMemory<float>() + warp * warp_floats;
  const bool is_grouped = args.chosen_groups < args.groups;
  // Then the order of scores is that of logits, which rounding cannot make equal.
  const bool by_logits =
      args.scores == RouterScores::kSoftmaxOfChosen || (args.correction == nullptr && !is_grouped);
  SoftmaxSums all;
  const bool needs_all = args.scores == RouterScores::kSoftmax && !(by_logits && args.normalized);
  if (needs_all || (args.entropy != nullptr && args.scores != RouterScores::kSigmoid)) {
    all = SumsOfLogits(logits, args.experts, lane);
  }
  const auto score = [&](float logit) {
    return args.scores == RouterScores::kSigmoid ? RouterSigmoid(logit) : all.Probability(logit);
  };
  float nans = 0;
  for (int e = lane; e < experts; e += kWarp) {
    const float logit = logits[e];
    float value = by_logits ? logit : score(logit);
    if (args.correction != nullptr) value += args.correction[e];
    nans += logit == logit ? 0.0f : 1.0f;
    values[e] = logit == logit && value == value ? value : -INFINITY;
  }
  const bool are_numbers = TeamSum<kWarp>(nans, nullptr) == 0.0f;
  __syncwarp();
  if (is_grouped) RemoveGroups(args, values, values + experts, lane);

  // The lane that has a choice keeps it: it alone reads what it wrote.
  Ranked last = Front();
  float largest = -INFINITY;
  for (int j = 0; j < static_cast<int>(args.chosen); ++j) {
    last = FirstAfter(last, values, experts, lane);
    largest = fmaxf(largest, logits[last.place]);
    if (j % kWarp == lane) choice[j] = last.place;
  }
  const bool is_of_chosen = IsSoftmaxOfChosen(args);
  const auto unscaled = [&](int64_t j) {
    const float logit = logits[choice[j]];
    return is_of_chosen ? expf(logit - largest) : score(logit);
  };
  float sum = 0;
  for (int64_t j = lane; j < args.chosen; j += kWarp) sum += unscaled(j);
  sum = TeamSum<kWarp>(sum, nullptr);
  if (args.scores == RouterScores::kSigmoid) sum += kSigmoidEpsilon;
  if (!is_of_chosen && !args.normalized) sum = 1.0f;
  for (int64_t j = lane; j < args.chosen; j += kWarp) {
    const float scale = args.scale * ExpertScale(args, choice[j]);
    weights[j] = are_numbers ? unscaled(j) / sum * scale : NAN;
  }
  if (args.entropy == nullptr) return;
  const float entropy = EntropyOf(args, logits, all, lane);
  if (lane == 0) args.entropy[token] = are_numbers ? entropy : NAN;
}

// With p = softmax(logits) and dp the gradient by it, dlogits = p (dp - sum(p dp)). What the
// weights add to the chosen logits is computed by IsSoftmaxOfChosen's formula or the sigmoid's.
template <typename T>
__global__ void __launch_bounds__(kWarpsMax* kWarp) RouteBackwardKernel(RouteBackwardArgs args) {
  const RouteArgs& forward = args.forward;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarpsMax + threadIdx.x / kWarp;
  if (token >= forward.tokens) return;
  const float* const logits = forward.logits + token * forward.experts;
  const int32_t* const choice = forward.choice + token * forward.chosen;
  const float* const by_weights = args.dweights + token * forward.chosen;
  // By the weights without the experts' own factors.
  const auto dweight = [&](int64_t j) { return by_weights[j] * ExpertScale(forward, choice[j]); };
  T* const dlogits = static_cast<T*>(args.dlogits) + token * forward.experts;
  const bool is_of_chosen = IsSoftmaxOfChosen(forward);
  const bool is_sigmoid = forward.scores == RouterScores::kSigmoid;
  const bool is_of_all = !is_of_chosen && !is_sigmoid;

  const bool needs_all = is_of_all || args.dprobabilities != nullptr;
  SoftmaxSums all;
  float mean = 0;  // sum(p dp)
  if (needs_all) {
    all = SumsOfLogits(logits, forward.experts, lane);
    for (int64_t e = lane; args.dprobabilities != nullptr && e < forward.experts; e += kWarp) {
      mean += all.Probability(logits[e]) * args.dprobabilities[e];
    }
    for (int64_t j = lane; is_of_all && j < forward.chosen; j += kWarp) {
      mean += all.Probability(logits[choice[j]]) * (forward.scale * dweight(j));
    }
    mean = TeamSum<kWarp>(mean, nullptr);
  }
  // The gradient without what the weights add to the chosen.
  const auto of_all = [&](int64_t e) {
    if (!needs_all) return 0.0f;
    const float by_probability = args.dprobabilities != nullptr ? args.dprobabilities[e] : 0.0f;
    return all.Probability(logits[e]) * (by_probability - mean);
  };
  float* const dscales = args.dexpert_scales + token * forward.experts;
  for (int64_t e = lane; e < forward.experts; e += kWarp) {
    dlogits[e] = FromFloat<T>(of_all(e));
    if (args.dexpert_scales != nullptr) dscales[e] = 0;
  }
  __syncwarp();  // the chosen ones are written again

  float largest = -INFINITY;
  for (int64_t j = lane; j < forward.chosen; j += kWarp) {
    largest = fmaxf(largest, logits[choice[j]]);
  }
  largest = WarpMax(largest);
  const auto unscaled = [&](int64_t j) {
    const float logit = logits[choice[j]];
    return is_of_chosen ? expf(logit - largest)
                        : (is_sigmoid ? RouterSigmoid(logit) : all.Probability(logit));
  };
  float sums[2] = {};  // of scores, and of them times the gradients by weights
  for (int64_t j = lane; j < forward.chosen; j += kWarp) {
    const float score = unscaled(j);
    sums[0] += score;
    sums[1] += score * dweight(j);
  }
  TeamSums<kWarp>(sums, nullptr);
  if (is_sigmoid) sums[0] += kSigmoidEpsilon;
  const bool is_divided = is_of_chosen || (is_sigmoid && forward.normalized);
  const float divisor = is_divided ? sums[0] : 1.0f;
  const float by_sum = is_divided ? sums[1] / divisor : 0.0f;
  for (int64_t j = lane; j < forward.chosen; j += kWarp) {
    const float by_score = forward.scale * (dweight(j) - by_sum) / divisor;
    if (args.dexpert_scales != nullptr) {
      dscales[choice[j]] = by_weights[j] * (unscaled(j) / divisor * forward.scale);
    }
    // The derivative of the logit's own score, its influence on the sums aside.
    const float slope = unscaled(j) * (is_sigmoid ? RouterSigmoid(-logits[choice[j]]) : 1.0f);
    dlogits[choice[j]] = FromFloat<T>(of_all(choice[j]) + slope * by_score);
  }
}

}  // namespace

int Route(const Queue& queue, const RouteArgs& args) {
  if (args.tokens == 0) return 0;
  const bool is_grouped = args.chosen_groups < args.groups;
  const int64_t remaining =
      is_grouped ? args.experts / args.groups * args.chosen_groups : args.experts;
  const int64_t floats = args.experts + args.groups;
  if (args.chosen > remaining || floats > kRouteFloatsMax) return kInvalidValue;
  const int64_t warps = std::min(int64_t{kWarpsMax}, kRouteFloatsMax / floats);
  return Launch(RouteKernel, Grid(CeilDiv(args.tokens, warps)), static_cast<int>(warps) * kWarp,
                static_cast<int>(warps * floats * int64_t{sizeof(float)}), queue, args,
                static_cast<int>(floats));
}

int RouteBackward(const Queue& queue, const RouteBackwardArgs& args) {
  if (args.forward.tokens == 0) return 0;
  return Launch(args.dtype == DType::kF32 ? RouteBackwardKernel<float> : RouteBackwardKernel<Bf16>,
                Grid(CeilDiv(args.forward.tokens, kWarpsMax)), kWarpsMax * kWarp, 0, queue, args);
}

}  // namespace megatrain::cuda
