// The gradient of routers, and the sums of their auxiliary loss.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/device/cpu/experts/router.h"
#include "engine/device/cpu/loops/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/experts/router_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/experts/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// The gradient by the logits of a token's chosen experts of what comes through their weights alone,
// without softmax's sum over all experts. `s` has the chosen logits, and the gradient afterwards;
// `weights` has what Route gives them but for the experts' own factors, whose part is in `dweights`
// already; `rest` is as long and is overwritten.
//
// With r the softmax over the chosen, weight = scale r gives scale r (dw - sum(dw r)). With s =
// sigmoid(logit), S their sum over the chosen, weight = scale s / S gives scale s / S (1 - s) (dw -
// sum(dw s / S)); weight = scale s gives scale s (1 - s) dw.
void GradientOfChosen(const RouteArgs& args, const float* dweights, float* s, float* weights,
                      float* rest) {
  const size_t chosen = static_cast<size_t>(args.chosen);
  const bool sigmoid = args.scores == RouterScores::kSigmoid;
  if (sigmoid) {
    SigmoidTo(s, chosen, true, rest);
    SigmoidTo(s, chosen, false, s);
  } else {
    SoftmaxTo(s, chosen, s);
    std::fill(rest, rest + chosen, 1.0f);
  }
  float mean = 0;
  if (args.normalized || !sigmoid) {
    float sum = sigmoid ? 1e-20f : 0.0f;
    for (size_t j = 0; j < chosen; ++j) sum += s[j];
    for (size_t j = 0; sigmoid && j < chosen; ++j) s[j] /= sum;
    for (size_t j = 0; j < chosen; ++j) mean += dweights[j] * s[j];
  }
  for (size_t j = 0; j < chosen; ++j) {
    weights[j] = s[j] * args.scale;
    s[j] *= rest[j] * args.scale * (dweights[j] - mean);
  }
}

template <typename T>
void BackwardOf(const RouteBackwardArgs& args, int64_t begin, int64_t end) {
  const RouteArgs& f = args.forward;
  const size_t experts = static_cast<size_t>(f.experts), chosen = static_cast<size_t>(f.chosen);
  const bool of_all = f.scores == RouterScores::kSoftmax && !f.normalized;
  std::vector<float> p(experts), d(experts), of_chosen(chosen), rest(chosen);
  std::vector<float> weights(chosen), dweights(chosen);
  for (int64_t t = begin; t < end; ++t) {
    const float* const logits = f.logits + t * f.experts;
    const int32_t* const choice = f.choice + t * f.chosen;
    const float* const by_weights = args.dweights + t * f.chosen;
    for (size_t j = 0; j < chosen; ++j) {
      dweights[j] = by_weights[j] * ExpertScale(f, choice[j]);
    }
    if (of_all || args.dprobabilities != nullptr) {
      // p = softmax(logits) gives p (dp - sum(dp p)), where dp has the weights' part if they are
      // scale p.
      SoftmaxTo(logits, experts, p.data());
      if (args.dprobabilities != nullptr) {
        std::copy(args.dprobabilities, args.dprobabilities + experts, d.begin());
      } else {
        std::fill(d.begin(), d.end(), 0.0f);
      }
      for (size_t j = 0; of_all && j < chosen; ++j) {
        weights[j] = f.scale * p[choice[j]];
        d[choice[j]] += f.scale * dweights[j];
      }
      VF sum = hn::Zero(DF());
      ForVectors(experts, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        sum = hn::MulAdd(LoadPart<kTail>(&p[i], count), LoadPart<kTail>(&d[i], count), sum);
      });
      const VF mean = hn::Set(DF(), SumLanes(sum));
      ForVectors(experts, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        const VF by_p = hn::Sub(LoadPart<kTail>(&d[i], count), mean);
        StorePart<kTail>(hn::Mul(LoadPart<kTail>(&p[i], count), by_p), &d[i], count);
      });
    } else {
      std::fill(d.begin(), d.end(), 0.0f);
    }
    if (!of_all) {
      for (size_t j = 0; j < chosen; ++j) of_chosen[j] = logits[choice[j]];
      GradientOfChosen(f, dweights.data(), of_chosen.data(), weights.data(), rest.data());
      for (size_t j = 0; j < chosen; ++j) d[choice[j]] += of_chosen[j];
    }
    if (args.dexpert_scales != nullptr) {
      float* const dscales = args.dexpert_scales + t * f.experts;
      std::fill(dscales, dscales + f.experts, 0.0f);
      for (size_t j = 0; j < chosen; ++j) dscales[choice[j]] = by_weights[j] * weights[j];
    }
    T* const dlogits = static_cast<T*>(args.dlogits) + t * f.experts;
    ForVectors(experts, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
      StorePart<kTail>(LoadPart<kTail>(&d[i], count), dlogits + i, count);
    });
  }
}

void RouteBackwardTokens(const RouteBackwardArgs& args, int64_t begin, int64_t end) {
  args.dtype == DType::kF32 ? BackwardOf<float>(args, begin, end)
                            : BackwardOf<bf16_t>(args, begin, end);
}

// Adds softmax(logits) of the tokens [begin, end) to probability[experts].
void AddProbabilities(const RouterSumsArgs& args, int64_t begin, int64_t end, double* probability) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> dh;  // as many floats as a vector of doubles has lanes
  const size_t lanes = hn::Lanes(dd), experts = static_cast<size_t>(args.experts);
  std::vector<float> p(experts);
  for (int64_t t = begin; t < end; ++t) {
    SoftmaxTo(args.logits + t * args.experts, experts, p.data());
    size_t e = 0;
    for (; e + lanes <= experts; e += lanes) {
      const auto more = hn::PromoteTo(dd, hn::LoadU(dh, &p[e]));
      hn::StoreU(hn::Add(hn::LoadU(dd, probability + e), more), dd, probability + e);
    }
    for (; e < experts; ++e) probability[e] += p[e];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(RouteBackwardTokens);
HWY_EXPORT(AddProbabilities);

void RunRouteBackward(const RouteBackwardArgs& args, ThreadPool* pool) {
  const RouteArgs& f = args.forward;
  ForRanges(pool, f.tokens, RowsInBlock(f.experts), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RouteBackwardTokens)(args, begin, end);
  });
}

// Each part of the tokens has sums of its own, which are added in the order of parts.
void RunRouterSums(const RouterSumsArgs& args, ThreadPool* pool) {
  const int64_t tokens = RowsInPart(args.tokens, args.experts);
  const size_t experts = static_cast<size_t>(args.experts);
  const size_t parts = static_cast<size_t>(CeilDiv(args.tokens, tokens));
  std::vector<double> probabilities(parts * experts, 0.0);
  ForRanges(pool, args.tokens, tokens, [&](int64_t begin, int64_t end) {
    const size_t part = static_cast<size_t>(begin / tokens) * experts;
    HWY_DYNAMIC_DISPATCH(AddProbabilities)(args, begin, end, &probabilities[part]);
  });
  for (size_t i = 0; i < parts * experts; ++i) args.probability[i % experts] += probabilities[i];
}

}  // namespace megatrain
#endif  // HWY_ONCE
