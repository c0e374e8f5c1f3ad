// The suite's tests of the embedding and its gradient.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

TEST_P(KernelsSuite, EmbeddingAndBackward) {
  struct Case {
    int64_t hidden, tokens;
    std::vector<std::pair<int64_t, int64_t>> runs;  // of the sorted ids: how many times which
    int64_t vocabulary = 50;
  };
  // A run's gradients are all the same here, so that the errors of its sum go one way.
  // Runs of one id: short ones, long ones side by side, all tokens, and such as end where the
  // pieces may end that a device cuts them into.
  for (const Case& c :
       {Case{3, 400, {}}, Case{600, 400, {{250, 7}}}, Case{264, 1, {}},
        Case{8, 1400, {{8, 1}, {1, 2}, {600, 3}, {500, 4}, {7, 5}, {16, 6}, {8, 9}}},
        Case{1032, 64, {{64, 49}}}, Case{40, 129, {{32, 2}, {32, 3}, {64, 4}}},
        // So much that a device has no memory for the sums of many pieces.
        Case{int64_t{1} << 19, 72, {{40, 1}, {21, 0}, {11, 2}}, 3}}) {
    const int64_t hidden = c.hidden, tokens = c.tokens, vocabulary = c.vocabulary;
    // In an emulation 20 s: the sums are FP32 in both.
    if (hidden > 10'000 && dtype() == DType::kF32) continue;
    if (!SizeIsTested(hidden * tokens)) continue;
    SCOPED_TRACE(testing::Message()
                 << tokens << " tokens of " << hidden << ", vocabulary " << vocabulary);
    // Once with a factor, and with an id among those of several tokens whose row gets nothing.
    for (const bool scaled : {false, true}) {
      if (scaled && hidden > 10'000) continue;
      const float scale = scaled ? 11.3125f : 1.0f;
      const int64_t padding_id = !scaled || tokens == 1 ? -1
                                 : c.runs.empty()       ? 12
                                                        : c.runs[c.runs.size() / 2].second;
      Operands operands(static_cast<uint64_t>(hidden));
      std::vector<int32_t> ids_of(static_cast<size_t>(tokens)), order(ids_of.size());
      for (int32_t& id : ids_of) id = static_cast<int32_t>(10 + operands.random()() % 20);
      auto next = ids_of.begin();
      for (const auto& [count, id] : c.runs) next = std::fill_n(next, count, id);
      std::shuffle(ids_of.begin(), ids_of.end(), operands.random());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return ids_of[static_cast<size_t>(a)] < ids_of[static_cast<size_t>(b)];
      });
      const size_t ids = operands.Ints(ids_of), sorted = operands.Ints(order);
      const size_t table = operands.Random(dtype(), vocabulary * hidden);
      const size_t out = operands.Random(dtype(), tokens * hidden);
      // Added to, or written over whatever was there, in rows of ids without tokens too.
      const bool add = tokens % 8 == 0;
      const size_t dtable = operands.Random(DType::kF32, vocabulary * hidden);
      ExpectLikeReference(device(), operands, (scaled ? 4 : 2) * tolerance(),
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            MT_RETURN_IF_ERROR(kernels.Embedding(
                                stream, {dtype(), tokens, hidden, vocabulary,
                                         static_cast<int32_t*>(p[ids]), p[table], p[out], scale}));
                            return kernels.EmbeddingBackward(
                                stream,
                                {dtype(), tokens, hidden, vocabulary, static_cast<int32_t*>(p[ids]),
                                 static_cast<int32_t*>(p[sorted]), p[out],
                                 static_cast<float*>(p[dtable]), add, scale, padding_id});
                          });
    }
  }
}

// The row of the padding id gets zeros, or keeps what it has, whatever its tokens' gradients are.
TEST_P(KernelsSuite, EmbeddingBackwardLeavesThePaddingOut) {
  constexpr int64_t kTokens = 40, kHidden = 24, kVocabulary = 6, kPadding = 2;
  for (const bool add : {false, true}) {
    Operands operands(2);
    std::vector<int32_t> ids_of, order(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) ids_of.push_back(t < 30 ? kPadding : 4);
    std::iota(order.begin(), order.end(), 0);
    std::vector<float> gradients = Normal(operands.random(), kTokens * kHidden, 1.0);
    gradients[5] = std::nanf("");
    const size_t ids = operands.Ints(ids_of), sorted = operands.Ints(order);
    const size_t dout = operands.Values(dtype(), gradients);
    const size_t dtable = operands.Random(DType::kF32, kVocabulary * kHidden);
    const auto got = RunOn(device(), operands,
                           [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                             return kernels.EmbeddingBackward(
                                 stream, {.dtype = dtype(),
                                          .tokens = kTokens,
                                          .hidden = kHidden,
                                          .vocabulary = kVocabulary,
                                          .ids = static_cast<int32_t*>(p[ids]),
                                          .sorted_positions = static_cast<int32_t*>(p[sorted]),
                                          .dout = p[dout],
                                          .dtable = static_cast<float*>(p[dtable]),
                                          .add = add,
                                          .padding_id = kPadding});
                           });
    for (size_t i = 0; i < kHidden; ++i) {
      const size_t at = kPadding * kHidden + i;
      ASSERT_EQ(ValueOf(got[dtable], at), add ? ValueOf(operands.all()[dtable], at) : 0.0) << i;
      ASSERT_TRUE(std::isfinite(ValueOf(got[dtable], 4 * kHidden + i))) << i;
    }
  }
}

}  // namespace megatrain
