// The suite's tests of routers: which experts tokens choose, gradients by logits, sorted choices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/expert_cases.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

struct RouteCase {
  int64_t tokens, experts, chosen;
  int64_t groups = 1, chosen_groups = 1;
  bool correction = false;
};

const std::vector<RouteCase>& RouteCases() {
  static const std::vector<RouteCase>& cases = *new std::vector<RouteCase>{
      {30, 1, 1},
      {40, 8, 8},
      {70, 8, 2, 1, 1, true},
      {33, 37, 5},
      {64, 128, 8},
      {16, 512, 10},
      {21, 100, 1, 1, 1, true},
      {31, 256, 8, 8, 4, true},
      {50, 12, 3, 6, 2},
      {20, 6, 2, 6, 3, true},  // groups of one
      {9, 384, 8, 1, 1, true},
      {700, 64, 6, 8, 3},
      {2000, 128, 8},
  };
  return cases;
}

constexpr RouterScores kScores[] = {RouterScores::kSoftmax, RouterScores::kSoftmaxOfChosen,
                                    RouterScores::kSigmoid};

// The kinds of scores and weights that a case is tried with.
struct RouteKind {
  RouterScores scores;
  bool normalized;
  float scale;
  bool expert_scales = false;
};

// An emulation takes its time: many tokens are tried with one kind, and where sizes are small, all
// but the smallest cases with one kind of each scores.
std::vector<RouteKind> RouteKinds(const RouteCase& c) {
  if (c.tokens > 500) return {{RouterScores::kSoftmax, true, 2.5f}};
  std::vector<RouteKind> kinds;
  for (const RouterScores scores : kScores) {
    kinds.push_back({scores, true, 2.5f});
    if (!SizeIsTested(16 * c.tokens * c.experts)) continue;
    kinds.push_back({scores, true, 1.0f});
    kinds.push_back({scores, false, 0.75f});
    kinds.push_back({scores, true, 1.5f, true});
    kinds.push_back({scores, false, 1.0f, true});
  }
  return kinds;
}

std::string NameOf(const RouteCase& c, const RouteKind& kind) {
  static constexpr const char* kNames[] = {"softmax", "softmax of the chosen", "sigmoid"};
  return std::to_string(c.tokens) + " tokens, " + std::to_string(c.chosen) + " of " +
         std::to_string(c.experts) + " experts, " + kNames[static_cast<int>(kind.scores)] +
         (kind.normalized ? ", normalized" : "") + (kind.expert_scales ? ", factors" : "");
}

struct RouteOperands {
  RouteOperands(Operands* operands, const RouteCase& c, const std::vector<float>& logits_of,
                const std::vector<float>& correction_of, DType scales_dtype = DType::kF32)
      : dtype(scales_dtype),
        logits(operands->Values(DType::kF32, logits_of)),
        correction(operands->Values(DType::kF32, correction_of)),
        expert_scales(operands->Random(scales_dtype, c.experts)),
        choice(operands->Ints(std::vector<int32_t>(static_cast<size_t>(c.tokens * c.chosen), -1))),
        weights(operands->Random(DType::kF32, c.tokens * c.chosen)),
        entropy(operands->Random(DType::kF32, c.tokens)) {}

  RouteArgs Args(const RouteCase& c, const RouteKind& kind, const std::vector<void*>& p) const {
    return {.tokens = c.tokens,
            .experts = c.experts,
            .chosen = c.chosen,
            .scores = kind.scores,
            .normalized = kind.normalized,
            .scale = kind.scale,
            .groups = c.groups,
            .chosen_groups = c.chosen_groups,
            .logits = static_cast<const float*>(p[logits]),
            .correction = c.correction ? static_cast<const float*>(p[correction]) : nullptr,
            .dtype = dtype,
            .expert_scales = kind.expert_scales ? p[expert_scales] : nullptr,
            .choice = static_cast<int32_t*>(p[choice]),
            .weights = static_cast<float*>(p[weights]),
            .entropy = static_cast<float*>(p[entropy])};
  }

  DType dtype;
  size_t logits, correction, expert_scales, choice, weights, entropy;
};

// ExpectClose, or zeros where the reference has zeros: one expert has an entropy of 0, and no
// gradient.
void ExpectCloseOrZero(const Operands::Operand& got, const Operands::Operand& want,
                       double tolerance, const std::string& name) {
  const size_t count = got.bytes.size() / (got.kind == Operands::Operand::kF32 ? 4 : 2);
  double largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(ValueOf(want, i)));
  if (largest > 1e-12) return ExpectClose(got, want, tolerance, name);
  for (size_t i = 0; i < count; ++i) ASSERT_LE(std::abs(ValueOf(got, i)), 1e-6) << name << " " << i;
}

void ExpectRouteLike(const Operands& operands, const std::vector<Operands::Operand>& got,
                     const std::vector<Operands::Operand>& want, const RouteOperands& route) {
  const auto name = [&](size_t i) { return NameOf(operands, i); };
  ExpectSame(got[route.choice], want[route.choice], "choice, " + name(route.choice));
  ExpectClose(got[route.weights], want[route.weights], 2e-6, "weights, " + name(route.weights));
  ExpectCloseOrZero(got[route.entropy], want[route.entropy], 4e-6,
                    "entropy, " + name(route.entropy));
}

// `values` to multiples of `step`, so that many are equal.
std::vector<float> Rounded(std::vector<float> values, float step) {
  for (float& value : values) value = std::round(value / step) * step;
  return values;
}

std::vector<int32_t> BitsOf(const std::vector<double>& values) {
  std::vector<int32_t> bits(2 * values.size());
  std::memcpy(bits.data(), values.data(), 8 * values.size());
  return bits;
}

}  // namespace

TEST_P(KernelsSuite, RouteAndBackward) {
  for (const RouteCase& c : RouteCases()) {
    if (!SizeIsTested(c.tokens * c.experts)) continue;
    for (const RouteKind& kind : RouteKinds(c)) {
      SCOPED_TRACE(NameOf(c, kind));
      Operands operands(static_cast<uint64_t>(c.experts));
      const RouteOperands route(&operands, c, Normal(operands.random(), c.tokens * c.experts, 2.0),
                                Normal(operands.random(), c.experts, 0.3), dtype());
      const size_t dscales = operands.Random(DType::kF32, c.tokens * c.experts);
      const size_t dweights = operands.Random(DType::kF32, c.tokens * c.chosen);
      const size_t dprobabilities = operands.Random(DType::kF32, c.experts);
      const size_t dlogits = operands.Random(dtype(), c.tokens * c.experts);
      const size_t without = operands.Random(dtype(), c.tokens * c.experts);
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        RouteBackwardArgs backward{.forward = route.Args(c, kind, p),
                                   .dweights = static_cast<const float*>(p[dweights]),
                                   .dtype = dtype(),
                                   .dlogits = p[without]};
        if (kind.expert_scales) backward.dexpert_scales = static_cast<float*>(p[dscales]);
        MT_RETURN_IF_ERROR(kernels.Route(stream, backward.forward));
        MT_RETURN_IF_ERROR(kernels.RouteBackward(stream, backward));
        backward.dprobabilities = static_cast<const float*>(p[dprobabilities]);
        backward.dlogits = p[dlogits];
        return kernels.RouteBackward(stream, backward);
      };
      const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
      ExpectRouteLike(operands, got, want, route);
      const double error = dtype() == DType::kF32 ? 5e-6 : 3e-3;
      ExpectCloseOrZero(got[dlogits], want[dlogits], error, "dlogits");
      ExpectCloseOrZero(got[without], want[without], error, "dlogits without dprobabilities");
      ExpectCloseOrZero(got[dscales], want[dscales], 5e-6, "the gradient by experts' factors");
    }
  }
}

// The lower index first; of groups too.
TEST_P(KernelsSuite, RouteAmongEquals) {
  for (const RouteCase& c : RouteCases()) {
    if (!SizeIsTested(c.tokens * c.experts)) continue;
    for (const RouteKind& kind : RouteKinds(c)) {
      for (const float step : {1.0f, 100.0f}) {  // 100: all are equal
        SCOPED_TRACE(NameOf(c, kind));
        Operands operands(static_cast<uint64_t>(c.experts));
        const RouteOperands route(
            &operands, c, Rounded(Normal(operands.random(), c.tokens * c.experts, 1.0), step),
            Rounded(Normal(operands.random(), c.experts, 0.3), step / 4));
        const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          return kernels.Route(stream, route.Args(c, kind, p));
        };
        ExpectRouteLike(operands, RunOn(device(), operands, call), RunOnReference(operands, call),
                        route);
      }
    }
  }
}

// A choice is made all the same, of the others first, and the weights show it.
TEST_P(KernelsSuite, RouteShowsLogitsThatAreNotNumbers) {
  for (const RouteCase& c : RouteCases()) {
    if (!SizeIsTested(c.tokens * c.experts)) continue;
    for (const RouteKind& kind : RouteKinds(c)) {
      SCOPED_TRACE(NameOf(c, kind));
      Operands operands(static_cast<uint64_t>(c.experts));
      std::vector<float> logits = Normal(operands.random(), c.tokens * c.experts, 2.0);
      // Token 1 has one, token 3 nothing else, token 5 every other one.
      const size_t experts = static_cast<size_t>(c.experts);
      for (size_t e = 0; e < experts; ++e) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        if (e == experts / 2) logits[experts + e] = nan;
        logits[3 * experts + e] = nan;
        if (e % 2 == 0) logits[5 * experts + e] = nan;
      }
      const RouteOperands route(&operands, c, logits, Normal(operands.random(), c.experts, 0.3));
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.Route(stream, route.Args(c, kind, p));
      };
      const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
      ExpectSame(got[route.choice], want[route.choice], NameOf(operands, route.choice));
      const auto expect_nan_where = [&](size_t operand, int64_t columns) {
        for (int64_t i = 0; i < c.tokens * columns; ++i) {
          const int64_t t = i / columns;
          ASSERT_EQ(std::isnan(ValueOf(got[operand], static_cast<size_t>(i))),
                    t == 1 || t == 3 || t == 5)
              << "token " << t;
        }
      };
      expect_nan_where(route.weights, c.chosen);
      expect_nan_where(route.entropy, 1);
    }
  }
}

// What all logits of a softmax have in common does not count.
TEST_P(KernelsSuite, RouteByLogitsFarFromZero) {
  for (const RouteCase& c : {RouteCase{33, 37, 5}, RouteCase{16, 8, 2}}) {
    for (const RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSoftmaxOfChosen}) {
      for (const bool normalized : {false, true}) {
        for (const float shift : {-300.0f, 300.0f}) {
          const RouteKind kind{scores, normalized, 1.0f};
          SCOPED_TRACE(NameOf(c, kind) + ", about " + std::to_string(shift));
          Operands operands(static_cast<uint64_t>(c.experts));
          std::vector<float> logits = Normal(operands.random(), c.tokens * c.experts, 2.0);
          for (float& logit : logits) logit += shift;
          const RouteOperands route(&operands, c, logits,
                                    std::vector<float>(static_cast<size_t>(c.experts)));
          const KernelCall call = [&](Kernels& kernels, Stream& stream,
                                      const std::vector<void*>& p) {
            return kernels.Route(stream, route.Args(c, kind, p));
          };
          ExpectRouteLike(operands, RunOn(device(), operands, call), RunOnReference(operands, call),
                          route);
        }
      }
    }
  }
}

TEST_P(KernelsSuite, RouteWithoutEntropy) {
  const RouteCase c{17, 24, 4};
  const RouteKind kind{RouterScores::kSoftmax, true, 1.0f};
  Operands operands(2);
  const RouteOperands route(&operands, c, Normal(operands.random(), c.tokens * c.experts, 1.0),
                            std::vector<float>(static_cast<size_t>(c.experts)));
  const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
    RouteArgs args = route.Args(c, kind, p);
    args.entropy = nullptr;
    return kernels.Route(stream, args);
  };
  const auto got = RunOn(device(), operands, call);
  ExpectRouteLike(operands, got, RunOnReference(operands, call), route);
  EXPECT_EQ(got[route.entropy].bytes, operands.all()[route.entropy].bytes);
}

// Added to what is there.
TEST_P(KernelsSuite, RouterSums) {
  struct Case {
    int64_t tokens, experts;
  };
  for (const Case& c : {Case{1, 1}, Case{50, 8}, Case{60, 128}, Case{15, 512}, Case{201, 37},
                        Case{3000, 128}, Case{9000, 6}}) {
    if (!SizeIsTested(c.tokens * c.experts)) continue;
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.experts << " experts");
    Operands operands(static_cast<uint64_t>(c.experts));
    const size_t logits = operands.Random(DType::kF32, c.tokens * c.experts, 2.0);
    const size_t probability =
        operands.Ints(BitsOf(std::vector<double>(static_cast<size_t>(c.experts), 0.125)));
    const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
      return kernels.RouterSums(stream, {.tokens = c.tokens,
                                         .experts = c.experts,
                                         .logits = static_cast<const float*>(p[logits]),
                                         .probability = static_cast<double*>(p[probability])});
    };
    const auto got = RunOn(device(), operands, call), want = RunOnReference(operands, call);
    for (size_t e = 0; e < static_cast<size_t>(c.experts); ++e) {
      double sum = 0, expected = 0;
      std::memcpy(&sum, &got[probability].bytes[8 * e], 8);
      std::memcpy(&expected, &want[probability].bytes[8 * e], 8);
      ASSERT_NEAR(sum, expected, 1e-6 * expected) << "expert " << e;
    }
  }
}

TEST_P(KernelsSuite, SortAssignments) {
  struct Case {
    int64_t tokens, experts, chosen, used;
  };
  for (const Case& c : {Case{1, 1, 1, 1}, Case{30, 1, 1, 1}, Case{50, 8, 8, 8},
                        Case{1, 512, 10, 512}, Case{300, 16, 2, 7}, Case{640, 128, 8, 128},
                        Case{77, 100, 1, 1}, Case{5000, 37, 3, 37}, Case{20000, 128, 8, 100}}) {
    if (!SizeIsTested(c.tokens * c.chosen)) continue;
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.chosen << " of " << c.experts);
    Operands operands(static_cast<uint64_t>(c.tokens));
    const SortedChoice sorted =
        ChooseExperts(operands.random(), c.tokens, c.experts, c.chosen, c.used);
    const size_t choice = operands.Ints(sorted.choice);
    const size_t offsets = operands.Ints(std::vector<int32_t>(sorted.offsets.size(), -1));
    const size_t assignments = operands.Ints(std::vector<int32_t>(sorted.choice.size(), -1));
    const size_t rows = operands.Ints(std::vector<int32_t>(sorted.choice.size(), -1));
    ExpectLikeReference(device(), operands, 0,
                        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                          return kernels.SortAssignments(
                              stream, {.tokens = c.tokens,
                                       .experts = c.experts,
                                       .chosen = c.chosen,
                                       .choice = static_cast<const int32_t*>(p[choice]),
                                       .offsets = static_cast<int32_t*>(p[offsets]),
                                       .assignments = static_cast<int32_t*>(p[assignments]),
                                       .rows = static_cast<int32_t*>(p[rows])});
                        });
  }
}

}  // namespace megatrain
