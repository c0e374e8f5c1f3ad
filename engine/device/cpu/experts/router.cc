#include "engine/device/cpu/experts/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/device/cpu/loops/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/experts/router.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/experts/scores-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

HWY_INLINE bool AllNumbers(const float* x, size_t n) {
  bool numbers = true;
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    const VF v = LoadPart<kTail>(x + i, count);
    numbers = numbers && hn::AllTrue(DF(), hn::Eq(v, v));
  });
  return numbers;
}

// The largest of the keys that were offered, the lower index first among equals. A NaN is taken for
// the lowest. REQUIRES: keys are offered by ascending index.
class Largest {
 public:
  // Keeps `wanted` keys in `keys`, and their indices in `indices`.
  Largest(int64_t wanted, float* keys, int32_t* indices)
      : wanted_(wanted), keys_(keys), indices_(indices) {}

  // Offers keys[begin, end) with their indices.
  HWY_INLINE void Offer(const float* keys, int64_t begin, int64_t end) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    int64_t i = begin;
    for (; i < end && count_ < wanted_; ++i) OfferOne(keys[i], i);
    for (; i + lanes <= end; i += lanes) {
      const VF least = hn::Set(DF(), keys_[wanted_ - 1]);
      if (hn::AllFalse(DF(), hn::Gt(Load(keys + i), least))) continue;
      for (int64_t j = i; j < i + lanes; ++j) OfferOne(keys[j], j);
    }
    for (; i < end; ++i) OfferOne(keys[i], i);
  }

 private:
  HWY_INLINE void OfferOne(float key, int64_t index) {
    if (std::isnan(key)) key = kLowest;
    if (count_ == wanted_ && !(key > keys_[count_ - 1])) return;
    int64_t place = count_ < wanted_ ? count_++ : count_ - 1;
    for (; place > 0 && key > keys_[place - 1]; --place) {
      keys_[place] = keys_[place - 1];
      indices_[place] = indices_[place - 1];
    }
    keys_[place] = key;
    indices_[place] = static_cast<int32_t>(index);
  }

  const int64_t wanted_;
  float* const keys_;
  int32_t* const indices_;
  int64_t count_ = 0;
};

// RouteBuffers holds what one thread needs for its tokens.
struct RouteBuffers {
  explicit RouteBuffers(const RouteArgs& args)
      : c(static_cast<size_t>(args.experts)),
        largest(static_cast<size_t>(std::max(args.chosen, args.chosen_groups))),
        sums(static_cast<size_t>(args.groups)),
        groups(static_cast<size_t>(args.chosen_groups)) {}

  std::vector<float> c, largest, sums;
  std::vector<int32_t> groups;
};

// The sum of the two largest keys of [begin, end), or of the one.
HWY_INLINE float SumOfTwoLargest(const float* keys, int64_t begin, int64_t end) {
  float first = kLowest, second = kLowest;
  for (int64_t i = begin; i < end; ++i) {
    const float key = std::isnan(keys[i]) ? kLowest : keys[i];
    second = std::max(second, std::min(first, key));
    first = std::max(first, key);
  }
  return end - begin == 1 ? first : first + second;
}

// Chooses the experts with the largest c. Without correction and groups that is the order of
// logits, which rounding cannot make equal.
void ChooseOf(const RouteArgs& args, const float* logits, int32_t* choice, RouteBuffers& buffers) {
  const size_t experts = static_cast<size_t>(args.experts);
  Largest chosen(args.chosen, buffers.largest.data(), choice);
  const bool grouped = args.chosen_groups < args.groups;
  if (!grouped && args.correction == nullptr) return chosen.Offer(logits, 0, args.experts);
  float* const c = buffers.c.data();
  if (args.scores == RouterScores::kSoftmax) {
    SoftmaxTo(logits, experts, c);
  } else if (args.scores == RouterScores::kSigmoid) {
    SigmoidTo(logits, experts, false, c);
  } else {
    std::copy(logits, logits + experts, c);
  }
  for (size_t e = 0; args.correction != nullptr && e < experts; ++e) c[e] += args.correction[e];
  if (!grouped) return chosen.Offer(c, 0, args.experts);
  const int64_t size = args.experts / args.groups;
  for (int64_t g = 0; g < args.groups; ++g) {
    buffers.sums[static_cast<size_t>(g)] = SumOfTwoLargest(c, g * size, (g + 1) * size);
  }
  Largest(args.chosen_groups, buffers.largest.data(), buffers.groups.data())
      .Offer(buffers.sums.data(), 0, args.groups);
  std::sort(buffers.groups.begin(), buffers.groups.end());
  for (const int32_t g : buffers.groups) chosen.Offer(c, g * size, (g + 1) * size);
}

// The largest logit and the sum of exp(logit - largest), of which softmax's p and entropy are made:
// with d = logit - largest, H = log(sum) - sum(exp(d) d) / sum.
struct SoftmaxSums {
  float largest, sum, entropy;
};

HWY_INLINE SoftmaxSums SumsOf(const float* logits, size_t n) {
  const float largest = LargestOf(logits, n);
  VF sum = hn::Zero(DF()), weighted = sum;
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    const VF d = hn::Sub(LoadPart<kTail>(logits + i, count), hn::Set(DF(), largest));
    const VF e = Counted<kTail>(ExpNegative(d), count);
    sum = hn::Add(sum, e);
    weighted = hn::Add(weighted, hn::IfThenZeroElse(hn::Eq(e, hn::Zero(DF())), hn::Mul(e, d)));
  });
  const float total = SumLanes(sum);
  return {largest, total, std::log(total) - SumLanes(weighted) / total};
}

// With S the sum of s = sigmoid(logit), H = log(S) - sum(s log(s)) / S.
HWY_INLINE float SigmoidEntropy(const float* logits, size_t n) {
  VF sum = hn::Zero(DF()), weighted = sum;
  ForVectors(n, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    const VF s = Counted<kTail>(Sigmoid(LoadPart<kTail>(logits + i, count)), count);
    sum = hn::Add(sum, s);
    const auto is_zero = hn::Eq(s, hn::Zero(DF()));
    const VF log = hn::Log(DF(), hn::IfThenElse(is_zero, hn::Set(DF(), 1.0f), s));
    weighted = hn::MulAdd(s, log, weighted);
  });
  const float total = SumLanes(sum);
  return std::log(total) - SumLanes(weighted) / total;
}

void RouteTokens(const RouteArgs& args, int64_t begin, int64_t end) {
  const size_t experts = static_cast<size_t>(args.experts);
  const size_t chosen = static_cast<size_t>(args.chosen);
  const bool sigmoid = args.scores == RouterScores::kSigmoid;
  const bool of_all = args.scores == RouterScores::kSoftmax && !args.normalized;
  RouteBuffers buffers(args);
  for (int64_t t = begin; t < end; ++t) {
    const float* const logits = args.logits + t * args.experts;
    int32_t* const choice = args.choice + t * args.chosen;
    float* const weights = args.weights + t * args.chosen;
    ChooseOf(args, logits, choice, buffers);
    if (!AllNumbers(logits, experts)) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::fill(weights, weights + chosen, nan);
      if (args.entropy != nullptr) args.entropy[t] = nan;
      continue;
    }
    for (size_t j = 0; j < chosen; ++j) weights[j] = logits[choice[j]];
    SoftmaxSums sums{};
    if (of_all || (args.entropy != nullptr && !sigmoid)) sums = SumsOf(logits, experts);
    float factor = args.scale;
    if (of_all) {
      ForVectors(chosen, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        const VF d = hn::Sub(LoadPart<kTail>(weights + i, count), hn::Set(DF(), sums.largest));
        StorePart<kTail>(ExpNegative(d), weights + i, count);
      });
      factor /= sums.sum;
    } else if (sigmoid) {
      SigmoidTo(weights, chosen, false, weights);
      float sum = 1e-20f;
      for (size_t j = 0; j < chosen; ++j) sum += weights[j];
      if (args.normalized) factor /= sum;
    } else {
      // Softmax over all divided by the sum over the chosen is softmax over the chosen.
      SoftmaxTo(weights, chosen, weights);
    }
    for (size_t j = 0; j < chosen; ++j) weights[j] *= factor * ExpertScale(args, choice[j]);
    if (args.entropy != nullptr) {
      args.entropy[t] = sigmoid ? SigmoidEntropy(logits, experts) : sums.entropy;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(RouteTokens);

void RunRoute(const RouteArgs& args, ThreadPool* pool) {
  ForRanges(pool, args.tokens, RowsInBlock(args.experts), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RouteTokens)(args, begin, end);
  });
}

}  // namespace megatrain
#endif  // HWY_ONCE
