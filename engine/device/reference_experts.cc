// The reference's routers and rows of experts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/device/reference_kernels.h"
#include "engine/device/reference_values.h"

namespace megatrain {
namespace {

using reference::Get;
using reference::Set;

using Doubles = std::vector<double>;

constexpr double kLowest = -std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

size_t At(int64_t i) { return static_cast<size_t>(i); }

Doubles LogitsOf(const float* logits, int64_t t, int64_t experts) {
  return Doubles(logits + t * experts, logits + (t + 1) * experts);
}

Doubles Softmax(const Doubles& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  Doubles result;
  for (double logit : logits) result.push_back(std::exp(logit - largest));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& value : result) value /= sum;
  return result;
}

// The s of RouteArgs.
Doubles ScoresOf(RouterScores scores, const Doubles& logits) {
  if (scores == RouterScores::kSoftmaxOfChosen) return logits;
  if (scores == RouterScores::kSoftmax) return Softmax(logits);
  Doubles result;
  for (double logit : logits) result.push_back(1.0 / (1.0 + std::exp(-logit)));
  return result;
}

// The first `count` indices by falling value, the lower one first among equals.
std::vector<int64_t> Largest(const Doubles& values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return values[At(a)] > values[At(b)]; });
  order.resize(At(count));
  return order;
}

// Without correction and groups the order of c is the order of logits, which rounding cannot make
// equal.
std::vector<int64_t> Choose(const RouteArgs& args, const Doubles& logits) {
  const bool grouped = args.chosen_groups < args.groups;
  const bool by_logits = args.correction == nullptr && !grouped;
  Doubles c = by_logits ? logits : ScoresOf(args.scores, logits);
  for (int64_t e = 0; e < args.experts; ++e) {
    if (args.correction != nullptr) c[At(e)] += args.correction[e];
    if (std::isnan(logits[At(e)]) || std::isnan(c[At(e)])) c[At(e)] = kLowest;
  }
  if (!grouped) return Largest(c, args.chosen);
  const int64_t size = args.experts / args.groups;
  Doubles sums;
  for (int64_t g = 0; g < args.groups; ++g) {
    const Doubles group(c.begin() + g * size, c.begin() + (g + 1) * size);
    double sum = 0;
    for (int64_t i : Largest(group, std::min<int64_t>(2, size))) sum += group[At(i)];
    sums.push_back(std::isnan(sum) ? kLowest : sum);
  }
  std::vector<int64_t> groups = Largest(sums, args.chosen_groups);
  std::sort(groups.begin(), groups.end());
  std::vector<int64_t> remaining;
  Doubles of_remaining;
  for (int64_t g : groups) {
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      remaining.push_back(e);
      of_remaining.push_back(c[At(e)]);
    }
  }
  std::vector<int64_t> chosen = Largest(of_remaining, args.chosen);
  for (int64_t& e : chosen) e = remaining[At(e)];
  return chosen;
}

double ExpertScale(const RouteArgs& args, int64_t expert) {
  return args.expert_scales == nullptr ? 1.0 : Get(args.dtype, args.expert_scales, expert);
}

// s of a token's chosen experts before they are divided by their sum, and this sum.
struct ChosenScores {
  Doubles s;
  double sum = 0;
};

ChosenScores ScoresOfChosen(const RouteArgs& args, const Doubles& logits, int64_t t) {
  const Doubles scores = ScoresOf(args.scores, logits);
  ChosenScores result;
  for (int64_t j = 0; j < args.chosen; ++j) {
    result.s.push_back(scores[At(args.choice[t * args.chosen + j])]);
  }
  if (args.scores == RouterScores::kSoftmaxOfChosen) result.s = Softmax(result.s);
  result.sum = std::accumulate(result.s.begin(), result.s.end(), 0.0);
  if (args.scores == RouterScores::kSigmoid) result.sum += 1e-20;
  return result;
}

double EntropyOf(RouterScores scores, const Doubles& logits) {
  Doubles p = ScoresOf(scores == RouterScores::kSigmoid ? scores : RouterScores::kSoftmax, logits);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  double entropy = 0;
  for (double value : p) {
    if (value != 0) entropy -= value / sum * std::log(value / sum);
  }
  return entropy;
}

// The weight of a row, 1 without weights.
double WeightOf(const ExpertRows& range, const float* weights, int64_t row) {
  return weights != nullptr ? weights[range.assignments[range.first + row]] : 1.0;
}

int64_t TokenOf(const ExpertRows& range, int64_t row) {
  return range.assignments[range.first + row] / range.chosen;
}

}  // namespace

absl::Status ReferenceKernels::Route(Stream&, const RouteArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    const Doubles logits = LogitsOf(args.logits, t, args.experts);
    const bool numbers =
        std::none_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); });
    const std::vector<int64_t> choice = Choose(args, logits);
    for (int64_t j = 0; j < args.chosen; ++j) {
      args.choice[t * args.chosen + j] = static_cast<int32_t>(choice[At(j)]);
    }
    const ChosenScores chosen = ScoresOfChosen(args, logits, t);
    for (int64_t j = 0; j < args.chosen; ++j) {
      const double weight = chosen.s[At(j)] / (args.normalized ? chosen.sum : 1.0) * args.scale *
                            ExpertScale(args, choice[At(j)]);
      args.weights[t * args.chosen + j] = static_cast<float>(numbers ? weight : kNotANumber);
    }
    if (args.entropy != nullptr) {
      args.entropy[t] = static_cast<float>(numbers ? EntropyOf(args.scores, logits) : kNotANumber);
    }
  }
  return absl::OkStatus();
}

// By chain: with S the sum over the chosen, w = scale s / S gives ds = scale (dw - sum(dw s) / S) /
// S; p = softmax(l) gives dl = p (dp - sum(dp p)); s = sigmoid(l) gives dl = ds s (1 - s).
absl::Status ReferenceKernels::RouteBackward(Stream&, const RouteBackwardArgs& args) {
  const RouteArgs& f = args.forward;
  for (int64_t t = 0; t < f.tokens; ++t) {
    const Doubles logits = LogitsOf(f.logits, t, f.experts);
    const int32_t* const choice = f.choice + t * f.chosen;
    const ChosenScores chosen = ScoresOfChosen(f, logits, t);
    Doubles dweights;  // by the weights without the experts' own factors
    for (int64_t j = 0; j < f.chosen; ++j) {
      dweights.push_back(args.dweights[t * f.chosen + j] * ExpertScale(f, choice[j]));
    }
    if (args.dexpert_scales != nullptr) {
      float* const dscales = args.dexpert_scales + t * f.experts;
      std::fill(dscales, dscales + f.experts, 0.0f);
      for (int64_t j = 0; j < f.chosen; ++j) {
        const double weight = chosen.s[At(j)] / (f.normalized ? chosen.sum : 1.0) * f.scale;
        dscales[choice[j]] = static_cast<float>(args.dweights[t * f.chosen + j] * weight);
      }
    }
    double by_sum = 0;
    for (int64_t j = 0; j < f.chosen; ++j) by_sum += dweights[At(j)] * chosen.s[At(j)] / chosen.sum;
    Doubles ds(At(f.chosen)), dlogits(At(f.experts), 0.0);
    for (int64_t j = 0; j < f.chosen; ++j) {
      const double dweight = dweights[At(j)];
      ds[At(j)] = f.scale * (f.normalized ? (dweight - by_sum) / chosen.sum : dweight);
    }
    double mean = 0;
    for (int64_t j = 0; j < f.chosen; ++j) mean += ds[At(j)] * chosen.s[At(j)];
    const Doubles probabilities = Softmax(logits);
    if (f.scores == RouterScores::kSoftmax) {
      for (int64_t e = 0; e < f.experts; ++e) dlogits[At(e)] -= probabilities[At(e)] * mean;
    }
    for (int64_t j = 0; j < f.chosen; ++j) {
      const double s = chosen.s[At(j)];
      double& dlogit = dlogits[At(choice[j])];
      switch (f.scores) {
        case RouterScores::kSoftmax:
          dlogit += s * ds[At(j)];
          break;
        case RouterScores::kSoftmaxOfChosen:
          dlogit += s * (ds[At(j)] - mean);
          break;
        case RouterScores::kSigmoid:
          dlogit += s * (1 - s) * ds[At(j)];
          break;
      }
    }
    if (args.dprobabilities != nullptr) {
      const double of_all =
          std::inner_product(probabilities.begin(), probabilities.end(), args.dprobabilities, 0.0);
      for (int64_t e = 0; e < f.experts; ++e) {
        dlogits[At(e)] += probabilities[At(e)] * (args.dprobabilities[e] - of_all);
      }
    }
    for (int64_t e = 0; e < f.experts; ++e) {
      Set(args.dtype, args.dlogits, t * f.experts + e, dlogits[At(e)]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::RouterSums(Stream&, const RouterSumsArgs& args) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    const Doubles probabilities = Softmax(LogitsOf(args.logits, t, args.experts));
    for (int64_t e = 0; e < args.experts; ++e) args.probability[e] += probabilities[At(e)];
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::SortAssignments(Stream&, const SortAssignmentsArgs& args) {
  int32_t row = 0;
  std::vector<int64_t> rows_of_token(At(args.tokens), 0);
  for (int64_t e = 0; e < args.experts; ++e) {
    args.offsets[e] = row;
    for (int64_t a = 0; a < args.tokens * args.chosen; ++a) {
      if (args.choice[a] != e) continue;
      const int64_t t = a / args.chosen;
      args.rows[t * args.chosen + rows_of_token[At(t)]++] = row;
      args.assignments[row++] = static_cast<int32_t>(a);
    }
  }
  args.offsets[args.experts] = row;
  return absl::OkStatus();
}

absl::Status ReferenceKernels::GatherRows(Stream&, const GatherRowsArgs& args) {
  for (int64_t row = 0; row < args.range.rows; ++row) {
    const int64_t x = TokenOf(args.range, row) * args.width;
    for (int64_t i = 0; i < args.width; ++i) {
      Set(args.dtype, args.out, row * args.width + i,
          WeightOf(args.range, args.weights, row) * Get(args.dtype, args.x, x + i));
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernels::AddRows(Stream&, const AddRowsArgs& args) {
  Doubles sum(args.sum, args.sum + args.range.tokens * args.width);
  for (int64_t row = 0; row < args.range.rows; ++row) {
    const int64_t of_token = TokenOf(args.range, row) * args.width;
    for (int64_t i = 0; i < args.width; ++i) {
      sum[At(of_token + i)] +=
          WeightOf(args.range, args.weights, row) * Get(args.dtype, args.x, row * args.width + i);
    }
  }
  std::transform(sum.begin(), sum.end(), args.sum, [](double x) { return static_cast<float>(x); });
  return absl::OkStatus();
}

absl::Status ReferenceKernels::WeighRows(Stream&, const WeighRowsArgs& args) {
  for (int64_t row = 0; row < args.range.rows; ++row) {
    const int64_t assignment = args.range.assignments[args.range.first + row];
    double sum = 0;
    for (int64_t i = row * args.width; i < (row + 1) * args.width; ++i) {
      const double dout = Get(args.dtype, args.dout, i);
      sum += dout * Get(args.dtype, args.out, i);
      Set(args.dtype, args.dout, i, dout * args.weights[assignment]);
    }
    for (int64_t i = 0; args.bias != nullptr && i < args.bias_width; ++i) {
      const int64_t bias = (args.choice[assignment] - args.first_expert) * args.bias_width + i;
      sum += Get(args.dtype, args.dy, row * args.bias_width + i) * Get(args.dtype, args.bias, bias);
    }
    args.dweights[assignment] = static_cast<float>(sum);
  }
  return absl::OkStatus();
}

}  // namespace megatrain
