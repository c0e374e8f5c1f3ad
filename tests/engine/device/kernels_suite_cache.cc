// The suite's tests of attention over a cache of keys and values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

struct CacheCase {
  int64_t heads, kv_heads, head_dim, value_dim;
  std::vector<int32_t> positions;  // of the tokens; -1: a token of no sequence
  std::vector<int32_t> sequences;  // of the tokens; empty: each has one of its own
  int64_t window = 0;
  float softcap = 0;
  bool sinks = false;
};

const std::vector<CacheCase>& CacheCases() {
  static const std::vector<CacheCase>& cases = *new std::vector<CacheCase>{
      {2, 2, 64, 64, {0, 5, 299}, {}},
      {6, 2, 10, 10, {37, -1, 0, 1}, {}},
      {8, 1, 128, 128, {600, 511, 512, 513}, {}},
      {5, 1, 16, 16, {3, -1, -1, 8}, {}},
      {1, 1, 256, 256, {40}, {}},
      {2, 1, 512, 512, {23, 4}, {}},
      {14, 2, 72, 72, {7, 1100, 64, 31, 32}, {}},
      // Several tokens of a sequence, which see each other.
      {4, 2, 32, 32, {20, 21, 22, 4, 5}, {0, 0, 0, 1, 1}},
      {3, 3, 104, 104, {-1, -1}, {}},
      {6, 2, 10, 10, {37, -1, 0, 1}, {}, 1},
      {4, 1, 64, 64, {700, 1, 2, 3}, {}, 3},
      {5, 1, 16, 16, {900, -1, 600}, {}, 515},
      {2, 1, 256, 256, {40, 0, 8}, {}, 0, 1.5f},
      {3, 3, 48, 48, {40, 0, 8}, {}, 0, 0, true},
      {8, 2, 128, 128, {300, 20, 21, 22}, {0, 1, 1, 1}, 21, 1.0f, true},
      // Values of another size than keys.
      {4, 4, 24, 16, {37, -1, 0, 1}, {}},
      {6, 2, 20, 36, {5, 299, 600}, {}, 7, 1.5f, true},
      {3, 3, 192, 128, {40, 41, 300}, {0, 0, 1}},
      {2, 1, 48, 104, {20, 700}, {}},
  };
  return cases;
}

// The rows of sequences lie in the cache one behind another, in no order of theirs.
std::vector<int32_t> FirstRows(const CacheCase& c, int64_t* rows) {
  std::vector<int32_t> sequences = c.sequences;
  if (sequences.empty()) {
    sequences.resize(c.positions.size());
    std::iota(sequences.begin(), sequences.end(), 0);
  }
  std::vector<int32_t> first(c.positions.size(), -1);
  *rows = 3;
  for (int32_t s = *std::max_element(sequences.begin(), sequences.end()); s >= 0; --s) {
    int32_t longest = -1;
    for (size_t t = 0; t < first.size(); ++t) {
      if (sequences[t] != s || c.positions[t] < 0) continue;
      first[t] = static_cast<int32_t>(*rows);
      longest = std::max(longest, c.positions[t]);
    }
    *rows += longest + 1;
  }
  return first;
}

}  // namespace

TEST_P(KernelsSuite, CachedAttention) {
  for (const CacheCase& c : CacheCases()) {
    const int64_t tokens = static_cast<int64_t>(c.positions.size());
    int64_t rows = 0;
    const std::vector<int32_t> first_of = FirstRows(c, &rows);
    if (!SizeIsTested(rows * c.heads * std::max(c.head_dim, c.value_dim))) continue;
    SCOPED_TRACE(testing::Message()
                 << c.heads << " heads, " << c.kv_heads << " of keys, head_dim " << c.head_dim
                 << ", values of " << c.value_dim << ", " << tokens << " tokens");
    Operands operands(static_cast<uint64_t>(c.heads + c.head_dim));
    const int64_t q_width = c.heads * c.head_dim, k_width = c.kv_heads * c.head_dim;
    const int64_t cache_row = k_width + c.kv_heads * c.value_dim;
    const int64_t stride = q_width + cache_row, out_width = c.heads * c.value_dim;
    const size_t qkv = operands.Random(dtype(), tokens * stride);
    const size_t cache = operands.Random(dtype(), (rows + 1) * cache_row);
    const size_t out = operands.RandomBefore(dtype(), tokens * out_width, out_width);
    std::vector<int32_t> positions_of = c.positions;
    for (int32_t& position : positions_of) position = std::max(position, 0);
    const size_t first = operands.Ints(first_of), positions = operands.Ints(positions_of);
    const size_t sinks = c.sinks ? operands.Random(dtype(), c.heads, 2.0) : 0;
    const auto call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
      const auto at = [&](int64_t element) {
        return static_cast<char*>(p[qkv]) + element * DTypeBytes(dtype());
      };
      const CachedAttentionArgs args{.dtype = dtype(),
                                     .tokens = tokens,
                                     .heads = c.heads,
                                     .kv_heads = c.kv_heads,
                                     .head_dim = c.head_dim,
                                     .value_dim = c.value_dim,
                                     .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                                     .shaping = {.window = c.window,
                                                 .softcap = c.softcap,
                                                 .sinks = c.sinks ? p[sinks] : nullptr},
                                     .first_rows = static_cast<int32_t*>(p[first]),
                                     .positions = static_cast<int32_t*>(p[positions]),
                                     .q = at(0),
                                     .q_stride = stride,
                                     .k = at(q_width),
                                     .k_stride = stride,
                                     .v = at(q_width + k_width),
                                     .v_stride = stride,
                                     .cache = p[cache],
                                     .out = p[out]};
      MT_RETURN_IF_ERROR(kernels.StoreInCache(stream, args));
      return kernels.CachedAttention(stream, args);
    };
    const auto got = RunOn(device(), operands, call);
    const auto want = RunOnReference(operands, call);
    // Rows of no token stay as they are, the others are copies.
    ExpectSame(got[cache], want[cache], "the cache, " + NameOf(operands, cache));
    const bool none =
        std::all_of(first_of.begin(), first_of.end(), [](int32_t r) { return r < 0; });
    if (none) {
      for (int64_t i = 0; i < tokens * out_width; ++i) {
        ASSERT_EQ(ValueOf(got[out], static_cast<size_t>(i)), 0) << i;
      }
    } else {
      ExpectClose(got[out], want[out], dtype() == DType::kF32 ? 4e-6 : 3e-3,
                  "out, " + NameOf(operands, out), &operands.all()[out]);
    }
  }
}

// A token sees in the cache what it sees among the tokens of its document.
TEST_P(KernelsSuite, CachedAttentionIsThatOfTheWholeSequence) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 48, kTokens = 40;
  constexpr int64_t kWidth = kHeads * kDim, kKvWidth = kKvHeads * kDim;
  constexpr int64_t kStride = kWidth + 2 * kKvWidth;
  const struct {
    int64_t window;
    float softcap;
    bool sinks;
  } shapings[] = {{0, 0, false},    {1, 0, false}, {19, 0, false},  {200, 0, false},
                  {0, 1.5f, false}, {0, 0, true},  {19, 1.5f, true}};
  for (const auto& [window, softcap, has_sinks] : shapings) {
    SCOPED_TRACE(testing::Message()
                 << "window " << window << ", softcap " << softcap << (has_sinks ? ", sinks" : ""));
    Operands operands(11);
    const size_t qkv = operands.Random(dtype(), kTokens * kStride);
    const size_t cache = operands.Random(dtype(), kTokens * 2 * kKvWidth);
    const size_t whole = operands.Random(dtype(), kTokens * kWidth);
    const size_t cached = operands.Random(dtype(), kTokens * kWidth);
    const size_t lse = operands.Random(DType::kF32, kTokens * kHeads);
    const size_t sinks = operands.Random(dtype(), kHeads, 2.0);
    std::vector<int32_t> bounds_of, positions_of;
    for (int32_t t = 0; t < kTokens; ++t) {
      bounds_of.insert(bounds_of.end(), {0, kTokens});
      positions_of.push_back(t);
    }
    const size_t bounds = operands.Ints(bounds_of), positions = operands.Ints(positions_of);
    const size_t first = operands.Ints(std::vector<int32_t>(kTokens, 0));
    const int32_t starts[] = {0, kTokens};
    const auto got = RunOn(
        device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          const auto at = [&](int64_t element) {
            return static_cast<char*>(p[qkv]) + element * DTypeBytes(dtype());
          };
          const AttentionShaping shaping{
              .window = window, .softcap = softcap, .sinks = has_sinks ? p[sinks] : nullptr};
          MT_RETURN_IF_ERROR(
              kernels.Attention(stream, {.dtype = dtype(),
                                         .tokens = kTokens,
                                         .heads = kHeads,
                                         .kv_heads = kKvHeads,
                                         .head_dim = kDim,
                                         .value_dim = kDim,
                                         .scale = 0.15f,
                                         .shaping = shaping,
                                         .document_starts = starts,
                                         .documents = 1,
                                         .document_bounds = static_cast<int32_t*>(p[bounds]),
                                         .q = at(0),
                                         .q_stride = kStride,
                                         .k = at(kWidth),
                                         .k_stride = kStride,
                                         .v = at(kWidth + kKvWidth),
                                         .v_stride = kStride,
                                         .out = p[whole],
                                         .lse = static_cast<float*>(p[lse])}));
          const CachedAttentionArgs args{.dtype = dtype(),
                                         .tokens = kTokens,
                                         .heads = kHeads,
                                         .kv_heads = kKvHeads,
                                         .head_dim = kDim,
                                         .value_dim = kDim,
                                         .scale = 0.15f,
                                         .shaping = shaping,
                                         .first_rows = static_cast<int32_t*>(p[first]),
                                         .positions = static_cast<int32_t*>(p[positions]),
                                         .q = at(0),
                                         .q_stride = kStride,
                                         .k = at(kWidth),
                                         .k_stride = kStride,
                                         .v = at(kWidth + kKvWidth),
                                         .v_stride = kStride,
                                         .cache = p[cache],
                                         .out = p[cached]};
          MT_RETURN_IF_ERROR(kernels.StoreInCache(stream, args));
          return kernels.CachedAttention(stream, args);
        });
    ExpectClose(got[cached], got[whole], dtype() == DType::kF32 ? 4e-6 : 6e-3,
                "out, " + NameOf(operands, cached));
  }
}

// Other tokens of the call change no bit of a token, so that an answer does not depend on the
// prompts beside it.
TEST_P(KernelsSuite, CachedAttentionOfATokenIsItsOwn) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 40, kRows = 90, kTokens = 3;
  Operands operands(8);
  const size_t q = operands.Random(dtype(), kTokens * kHeads * kDim);
  const size_t cache = operands.Random(dtype(), kRows * 2 * kKvHeads * kDim);
  const size_t whole = operands.Random(dtype(), kTokens * kHeads * kDim);
  const size_t alone = operands.Random(dtype(), kTokens * kHeads * kDim);
  const size_t first = operands.Ints({60, 2, 30}), positions = operands.Ints({29, 27, 3});
  const auto got =
      RunOn(device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        const auto attend = [&](int64_t token, int64_t tokens, size_t out) {
          const int64_t skip = token * kHeads * kDim * DTypeBytes(dtype());
          return kernels.CachedAttention(stream,
                                         {.dtype = dtype(),
                                          .tokens = tokens,
                                          .heads = kHeads,
                                          .kv_heads = kKvHeads,
                                          .head_dim = kDim,
                                          .value_dim = kDim,
                                          .scale = 0.16f,
                                          .first_rows = static_cast<int32_t*>(p[first]) + token,
                                          .positions = static_cast<int32_t*>(p[positions]) + token,
                                          .q = static_cast<char*>(p[q]) + skip,
                                          .q_stride = kHeads * kDim,
                                          .cache = p[cache],
                                          .out = static_cast<char*>(p[out]) + skip});
        };
        MT_RETURN_IF_ERROR(attend(0, kTokens, whole));
        for (int64_t token = 0; token < kTokens; ++token) {
          MT_RETURN_IF_ERROR(attend(token, 1, alone));
        }
        return absl::OkStatus();
      });
  ExpectSame(got[whole], got[alone], "out, " + NameOf(operands, whole));
}

}  // namespace megatrain
