// The suite's tests of gated units.
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

namespace {

struct GluKind {
  const char* name;
  GluActivation activation;
  float limit = 0, slope = 0;
};
// gpt-oss clamps at 7.
constexpr GluKind kGluKinds[] = {{"silu", GluActivation::kSilu},
                                 {"gelu", GluActivation::kGeluTanh},
                                 {"clamped silu", GluActivation::kClampedSilu, 7.0f, 1.702f}};

// The forward pass, and the backward pass in place.
KernelCall GluCall(const GluKind& kind, DType dtype, int64_t tokens, int64_t width, size_t gate_up,
                   size_t out, size_t dout, bool interleaved = false) {
  return [=](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
    MT_RETURN_IF_ERROR(kernels.Glu(stream, {dtype, tokens, width, p[gate_up], p[out],
                                            kind.activation, kind.limit, kind.slope, interleaved}));
    return kernels.GluBackward(stream, {dtype, tokens, width, p[gate_up], p[dout], p[gate_up],
                                        kind.activation, kind.limit, kind.slope, interleaved});
  };
}

}  // namespace

TEST_P(KernelsSuite, GluAndBackward) {
  for (const GluKind& kind : kGluKinds) {
    for (int64_t width : {1, 30, 257, 8, 520}) {
      const int64_t tokens = SizeIsTested(150 * 520) ? 150 : 20;
      for (const bool interleaved : {false, true}) {
        SCOPED_TRACE(testing::Message() << kind.name << ", " << tokens << "x" << width
                                        << (interleaved ? ", interleaved" : ""));
        Operands operands(static_cast<uint64_t>(width));
        const size_t gate_up = operands.Random(dtype(), tokens * 2 * width, 4.0);
        const size_t out = operands.Random(dtype(), tokens * width);
        const size_t dout = operands.Random(dtype(), tokens * width);
        ExpectLikeReference(device(), operands, tolerance(),
                            GluCall(kind, dtype(), tokens, width, gate_up, out, dout, interleaved));
      }
    }
  }
}

TEST_P(KernelsSuite, GluAtTheEnds) {
  for (const GluKind& kind : kGluKinds) {
    Operands operands(5);
    const std::vector<float> gates = {-1e4f, -90.0f, -88.0f, -87.0f, 1e-30f, 20.0f, 90.0f, 1e4f};
    std::vector<float> gate_up = gates;
    gate_up.resize(16, 2.0f);
    const size_t in = operands.Values(dtype(), gate_up);
    const size_t out = operands.Random(dtype(), 8), dout = operands.Random(dtype(), 8);
    SCOPED_TRACE(kind.name);
    ExpectLikeReference(device(), operands, tolerance(),
                        GluCall(kind, dtype(), 1, 8, in, out, dout));
  }
}

// A clamped operand has no gradient; one that equals the limit has, as with torch's clamp.
TEST_P(KernelsSuite, ClampedGluAtTheLimit) {
  Operands operands(6);
  const float above = 7.03125f, below = 6.96875f;
  const size_t gate_up = operands.Values(dtype(), {7, above, below, -20, 1, 1, 1, 1,  // gates
                                                   1, 1, 1, 1, 7, -7, above, -above});
  const size_t out = operands.Random(dtype(), 8);
  const size_t dout = operands.Values(dtype(), std::vector<float>(8, 1.0f));
  const KernelCall call = GluCall(kGluKinds[2], dtype(), 1, 8, gate_up, out, dout);
  ExpectLikeReference(device(), operands, tolerance(), call);
  const auto got = RunOn(device(), operands, call);
  const bool has_gradient[] = {true, false, true, true, true, true, true,  true,
                               true, true,  true, true, true, true, false, false};
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(ValueOf(got[gate_up], i) != 0, has_gradient[i]) << i;
}

// The backward pass gives the unit's output again, of which weights' gradients are made: the same
// bits whether packs can be moved or not.
TEST_P(KernelsSuite, GluBackwardGivesTheForwardsBits) {
  for (const GluKind& kind : kGluKinds) {
    for (int64_t width : {1, 37, 264}) {
      Operands operands(static_cast<uint64_t>(width));
      const int64_t tokens = 130;
      const size_t gate_up = operands.Random(dtype(), tokens * 2 * width, 8.0);
      const size_t out = operands.Random(dtype(), tokens * width);
      const size_t dout = operands.Random(dtype(), tokens * width);
      const auto got =
          RunOn(device(), operands, GluCall(kind, dtype(), tokens, width, gate_up, out, dout));
      ExpectSame(got[dout], got[out],
                 std::string(kind.name) + " in place, " + NameOf(operands, dout));
    }
  }
}

// Interleaved gates give the bits of those that lie apart.
TEST_P(KernelsSuite, InterleavedGluIsTheSameUnit) {
  for (const GluKind& kind : kGluKinds) {
    for (int64_t width : {1, 37, 264}) {
      const int64_t tokens = 15;
      Operands operands(static_cast<uint64_t>(width));
      const std::vector<float> apart = Normal(operands.random(), tokens * 2 * width, 4.0);
      std::vector<float> in_turn(apart.size());
      const auto place = [&](size_t i) {  // in in_turn, of element i of apart
        const size_t n = static_cast<size_t>(width), t = i / (2 * n), j = i % (2 * n);
        return 2 * t * n + (j < n ? 2 * j : 2 * (j - n) + 1);
      };
      for (size_t i = 0; i < apart.size(); ++i) in_turn[place(i)] = apart[i];
      const size_t gates[] = {operands.Values(dtype(), apart), operands.Values(dtype(), in_turn)};
      const std::vector<float> gradients = Normal(operands.random(), tokens * width, 1.0);
      const size_t out[] = {operands.Random(dtype(), tokens * width),
                            operands.Random(dtype(), tokens * width)};
      const size_t dout[] = {operands.Values(dtype(), gradients),
                             operands.Values(dtype(), gradients)};
      const auto got = RunOn(device(), operands,
                             [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                               MT_RETURN_IF_ERROR(GluCall(kind, dtype(), tokens, width, gates[0],
                                                          out[0], dout[0])(kernels, stream, p));
                               return GluCall(kind, dtype(), tokens, width, gates[1], out[1],
                                              dout[1], true)(kernels, stream, p);
                             });
      SCOPED_TRACE(testing::Message() << kind.name << " " << width);
      ExpectSame(got[out[1]], got[out[0]], "out, " + NameOf(operands, out[1]));
      ExpectSame(got[dout[1]], got[dout[0]], "dout, " + NameOf(operands, dout[1]));
      for (size_t i = 0; i < apart.size(); ++i) {
        ASSERT_EQ(ValueOf(got[gates[0]], i), ValueOf(got[gates[1]], place(i))) << i;
      }
    }
  }
}

// Gates beside their heads' queries, as a fused projection lays them, or by themselves; gradients
// apart and in place.
TEST_P(KernelsSuite, SigmoidGateAndBackward) {
  struct Case {
    int64_t heads, head_dim, padding;
  };
  for (const Case& c : {Case{1, 1, 0}, Case{3, 5, 1}, Case{2, 30, 4}, Case{3, 64, 8},
                        Case{5, 72, 0}, Case{2, 256, 16}}) {
    for (const bool in_place : {false, true}) {
      Operands operands(static_cast<uint64_t>(c.head_dim));
      const int64_t tokens = 50, elements = tokens * c.heads * c.head_dim;
      const int64_t fused = 2 * c.heads * c.head_dim + c.padding;  // [q | gate] of each head
      const int64_t apart = c.heads * c.head_dim + c.padding;
      const size_t x = operands.Random(dtype(), elements);
      const size_t gate = operands.Random(dtype(), tokens * fused, 4.0);
      const size_t dgate = operands.Random(dtype(), tokens * apart);
      const size_t out = operands.Random(dtype(), elements);
      const size_t dout = operands.Random(dtype(), elements);
      const size_t dx = operands.Random(dtype(), elements);
      SCOPED_TRACE(testing::Message()
                   << tokens << "x" << c.heads << "x" << c.head_dim << ", in place " << in_place);
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        const auto gate_of = [&](size_t operand) {
          return static_cast<char*>(p[operand]) + c.head_dim * DTypeBytes(dtype());
        };
        const SigmoidGateArgs forward{.dtype = dtype(),
                                      .tokens = tokens,
                                      .heads = c.heads,
                                      .head_dim = c.head_dim,
                                      .x = p[x],
                                      .gate = gate_of(gate),
                                      .gate_stride = fused,
                                      .gate_head_stride = 2 * c.head_dim,
                                      .out = p[out]};
        MT_RETURN_IF_ERROR(kernels.SigmoidGate(stream, forward));
        return kernels.SigmoidGateBackward(
            stream, {.forward = forward,
                     .dout = p[dout],
                     .dx = in_place ? p[x] : p[dx],
                     .dgate = in_place ? gate_of(gate) : p[dgate],
                     .dgate_stride = in_place ? fused : apart,
                     .dgate_head_stride = in_place ? 2 * c.head_dim : c.head_dim});
      };
      ExpectLikeReference(device(), operands, tolerance(), call);
      const auto got = RunOn(device(), operands, call);
      ExpectSame(got[dout], got[out], "in place, " + NameOf(operands, dout));
    }
  }
}

TEST_P(KernelsSuite, SigmoidGateInPlace) {
  Operands operands(8);
  const size_t x = operands.Random(dtype(), 3 * 40);
  const size_t gate = operands.Values(dtype(), [] {
    std::vector<float> gates(3 * 40, 0.5f);
    gates[0] = -1e4f, gates[1] = -88.0f, gates[2] = 0.0f, gates[3] = 90.0f, gates[4] = 1e4f;
    return gates;
  }());
  ExpectLikeReference(device(), operands, tolerance(),
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.SigmoidGate(stream, {.dtype = dtype(),
                                                            .tokens = 3,
                                                            .heads = 1,
                                                            .head_dim = 40,
                                                            .x = p[x],
                                                            .gate = p[gate],
                                                            .gate_stride = 40,
                                                            .gate_head_stride = 40,
                                                            .out = p[x]});
                      });
}

}  // namespace megatrain
