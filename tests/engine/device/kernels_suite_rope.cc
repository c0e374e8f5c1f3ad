// The suite's tests of rotary positions, and of copies and sums of heads.
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

TEST_P(KernelsSuite, Rope) {
  struct Case {
    int64_t head_dim, padding;
  };
  for (const Case& c : {Case{2, 4}, Case{10, 4}, Case{64, 4}, Case{96, 4}, Case{64, 8}, Case{80, 0},
                        Case{128, 16}}) {
    for (bool inverse : {false, true}) {
      const int64_t head_dim = c.head_dim;
      Operands operands(static_cast<uint64_t>(head_dim));
      const int64_t tokens = 70, heads = 3, stride = heads * head_dim + c.padding;
      const size_t x = operands.Random(dtype(), tokens * stride);
      std::vector<int32_t> where;
      for (int64_t t = 0; t < tokens; ++t) where.push_back(static_cast<int32_t>(t % 37));
      const size_t positions = operands.Ints(where);
      const size_t cosine = operands.Random(DType::kF32, 37 * head_dim / 2);
      const size_t sine = operands.Random(DType::kF32, 37 * head_dim / 2);
      SCOPED_TRACE(testing::Message() << tokens << "x" << heads << "x" << head_dim << ", stride "
                                      << stride << ", inverse " << inverse);
      ExpectLikeReference(device(), operands, tolerance(),
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            return kernels.Rope(stream,
                                                {.dtype = dtype(),
                                                 .tokens = tokens,
                                                 .heads = heads,
                                                 .head_dim = head_dim,
                                                 .rotary_dim = head_dim,
                                                 .x = p[x],
                                                 .stride = stride,
                                                 .positions = static_cast<int32_t*>(p[positions]),
                                                 .cosine = static_cast<float*>(p[cosine]),
                                                 .sine = static_cast<float*>(p[sine]),
                                                 .inverse = inverse});
                          });
    }
  }
}

// The head's first elements alone, and pairs of neighbours.
TEST_P(KernelsSuite, RopePartialAndInterleaved) {
  struct Case {
    int64_t head_dim, rotary_dim, padding;
  };
  for (const Case& c :
       {Case{2, 2, 4}, Case{9, 4, 1}, Case{10, 6, 4}, Case{24, 2, 8}, Case{64, 16, 0},
        Case{80, 32, 16}, Case{96, 72, 8}, Case{128, 64, 0}, Case{64, 64, 8}, Case{90, 90, 0}}) {
    for (int bits = 0; bits < 4; ++bits) {
      const bool interleaved = bits & 1, inverse = bits & 2;
      Operands operands(static_cast<uint64_t>(c.head_dim + bits));
      const int64_t tokens = 40, heads = 3, stride = heads * c.head_dim + c.padding;
      const int64_t table = 23, half = c.rotary_dim / 2;
      const size_t x = operands.Random(dtype(), tokens * stride);
      std::vector<int32_t> where;
      for (int64_t t = 0; t < tokens; ++t) where.push_back(static_cast<int32_t>(t * 7 % table));
      const size_t positions = operands.Ints(where);
      const size_t cosine = operands.Random(DType::kF32, table * half);
      const size_t sine = operands.Random(DType::kF32, table * half);
      SCOPED_TRACE(testing::Message() << c.rotary_dim << " of " << c.head_dim << ", interleaved "
                                      << interleaved << ", inverse " << inverse);
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.Rope(stream, {.dtype = dtype(),
                                     .tokens = tokens,
                                     .heads = heads,
                                     .head_dim = c.head_dim,
                                     .rotary_dim = c.rotary_dim,
                                     .interleaved = interleaved,
                                     .x = p[x],
                                     .stride = stride,
                                     .positions = static_cast<int32_t*>(p[positions]),
                                     .cosine = static_cast<float*>(p[cosine]),
                                     .sine = static_cast<float*>(p[sine]),
                                     .inverse = inverse});
      };
      ExpectLikeReference(device(), operands, tolerance(), call);
      // Elements behind rotary_dim, and between rows, keep their bits.
      const auto got = RunOn(device(), operands, call);
      for (int64_t at = 0; at < tokens * stride; ++at) {
        const int64_t in_row = at % stride;
        if (in_row < heads * c.head_dim && in_row % c.head_dim < c.rotary_dim) continue;
        ASSERT_EQ(ValueOf(got[x], static_cast<size_t>(at)),
                  ValueOf(operands.all()[x], static_cast<size_t>(at)))
            << "element " << at;
      }
    }
  }
}

// Some families have angles of 0 among their tables' (Gemma 4).
TEST_P(KernelsSuite, RopeByNoAngleChangesNothing) {
  for (const bool interleaved : {false, true}) {
    for (const int64_t head_dim : {10, 64}) {
      Operands operands(3);
      const int64_t tokens = 5, heads = 2;
      const size_t x = operands.Random(dtype(), tokens * heads * head_dim);
      const size_t positions = operands.Ints(std::vector<int32_t>(tokens, 0));
      const std::vector<float> ones(static_cast<size_t>(head_dim / 2), 1.0f);
      const size_t cosine = operands.Values(DType::kF32, ones);
      const size_t sine = operands.Values(DType::kF32, std::vector<float>(ones.size(), 0.0f));
      const auto got = RunOn(
          device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
            return kernels.Rope(stream, {.dtype = dtype(),
                                         .tokens = tokens,
                                         .heads = heads,
                                         .head_dim = head_dim,
                                         .rotary_dim = head_dim,
                                         .interleaved = interleaved,
                                         .x = p[x],
                                         .stride = heads * head_dim,
                                         .positions = static_cast<int32_t*>(p[positions]),
                                         .cosine = static_cast<float*>(p[cosine]),
                                         .sine = static_cast<float*>(p[sine])});
          });
      EXPECT_EQ(got[x].bytes, operands.all()[x].bytes) << head_dim;
    }
  }
}

// Heads of one width that are taken out of wider ones, or put into them, or made of one. Elements
// beside them keep their bits.
TEST_P(KernelsSuite, CopyHeads) {
  struct Case {
    int64_t heads, width, from_head, to_head, padding;
  };
  for (const Case& c : {Case{3, 16, 24, 40, 0}, Case{4, 8, 0, 24, 16}, Case{1, 5, 5, 7, 1},
                        Case{5, 3, 0, 9, 2}, Case{2, 128, 256, 128, 8}, Case{7, 20, 20, 44, 4}}) {
    constexpr int64_t kTokens = 45;
    Operands operands(static_cast<uint64_t>(c.width));
    const int64_t from_stride = c.heads * c.from_head + c.width + c.padding;
    const int64_t to_stride = c.heads * c.to_head + c.padding;
    const size_t from = operands.Random(dtype(), kTokens * from_stride);
    const size_t to = operands.Random(dtype(), kTokens * to_stride);
    SCOPED_TRACE(testing::Message() << c.heads << " heads of " << c.width << " of " << c.from_head
                                    << " to " << c.to_head);
    const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
      return kernels.CopyHeads(stream, {.dtype = dtype(),
                                        .tokens = kTokens,
                                        .heads = c.heads,
                                        .width = c.width,
                                        .from = p[from],
                                        .from_stride = from_stride,
                                        .from_head_stride = c.from_head,
                                        .to = p[to],
                                        .to_stride = to_stride,
                                        .to_head_stride = c.to_head});
    };
    ExpectSame(RunOn(device(), operands, call)[to], RunOnReference(operands, call)[to],
               NameOf(operands, to));
  }
}

TEST_P(KernelsSuite, SumHeads) {
  struct Case {
    int64_t heads, width, head, padding;
  };
  for (const Case& c : {Case{3, 16, 24, 0}, Case{128, 64, 192, 8}, Case{1, 5, 5, 1},
                        Case{16, 130, 131, 3}, Case{2, 8, 8, 0}}) {
    constexpr int64_t kTokens = 45;
    Operands operands(static_cast<uint64_t>(c.width));
    const int64_t x_stride = c.heads * c.head + c.padding, out_stride = c.width + c.padding;
    const size_t x = operands.Random(dtype(), kTokens * x_stride);
    const size_t out = operands.Random(dtype(), kTokens * out_stride);
    SCOPED_TRACE(testing::Message() << c.heads << " heads of " << c.width << " of " << c.head);
    ExpectLikeReference(device(), operands, tolerance(),
                        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                          return kernels.SumHeads(stream, {.dtype = dtype(),
                                                           .tokens = kTokens,
                                                           .heads = c.heads,
                                                           .width = c.width,
                                                           .x = p[x],
                                                           .x_stride = x_stride,
                                                           .x_head_stride = c.head,
                                                           .out = p[out],
                                                           .out_stride = out_stride});
                        });
  }
}

}  // namespace megatrain
