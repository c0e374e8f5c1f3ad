// The suite's tests of what is around the gated delta rule: its convolution and its norm.
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/delta_cases.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {
namespace {

struct ConvCase {
  int64_t channels, kernel;
  std::vector<int32_t> starts;
  int64_t padding = 0;

  int64_t tokens() const { return starts.back(); }
};

const std::vector<ConvCase>& ConvCases() {
  static const std::vector<ConvCase>& cases = *new std::vector<ConvCase>{
      {5, 4, {0, 7}, 2},          {24, 4, {0, 1, 3, 6, 10, 50}},
      {70, 2, {0, 30, 33}, 3},    {33, 8, {0, 2, 20, 27, 28}, 1},
      {264, 4, {0, 100, 131}, 8}, {600, 3, {0, 140, 300}},
  };
  return cases;
}

// The operands of a convolution and its gradient.
struct ConvOperands {
  ConvOperands(const ConvCase& c, DType dtype, Operands* operands,
               const std::vector<int32_t>& state_rows = {})
      : shape(c),
        dtype(dtype),
        documents(operands, c.starts, state_rows),
        stride(c.channels + c.padding) {
    const auto by_token = [&] {
      constexpr int64_t kBehind = 70;
      return operands->RandomBefore(dtype, c.tokens() * stride, kBehind * stride);
    };
    x = by_token(), y = by_token(), dy = by_token(), dx = by_token();
    weight = operands->Random(dtype, c.channels * c.kernel);
    dweight = operands->Random(DType::kF32, c.channels * c.kernel);
  }
  CausalConvArgs Forward(const std::vector<void*>& p) const {
    return {.dtype = dtype,
            .documents = documents.Bind(p),
            .channels = shape.channels,
            .kernel = shape.kernel,
            .x = p[x],
            .x_stride = stride,
            .weight = p[weight],
            .y = p[y],
            .y_stride = stride};
  }

  ConvCase shape;
  DType dtype;
  DocumentOperands documents;
  int64_t stride;
  size_t x, y, dy, dx, weight, dweight;
};

}  // namespace

TEST_P(KernelsSuite, CausalConvAndBackward) {
  for (const ConvCase& c : ConvCases()) {
    if (!SizeIsTested(c.tokens() * c.channels)) continue;
    for (const int gradient : {0, 1, 2}) {  // of the weight: none, added, overwritten
      Operands operands(1);
      const ConvOperands conv(c, dtype(), &operands);
      SCOPED_TRACE(testing::Message() << c.tokens() << " tokens, " << c.channels << " channels, "
                                      << c.kernel << " wide, dweight " << gradient);
      ExpectLikeReference(
          device(), operands, tolerance(),
          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
            MT_RETURN_IF_ERROR(kernels.CausalConv(stream, conv.Forward(p)));
            return kernels.CausalConvBackward(
                stream, {.forward = conv.Forward(p),
                         .dy = p[conv.dy],
                         .dy_stride = conv.stride,
                         .dx = p[conv.dx],
                         .dx_stride = conv.stride,
                         .dweight = gradient > 0 ? static_cast<float*>(p[conv.dweight]) : nullptr,
                         .add_dweight = gradient == 1});
          });
    }
  }
}

// Documents shorter and longer than the convolution, with and without a state, whose states are
// written apart, over those that are read, or for the first time.
TEST_P(KernelsSuite, CausalConvWithStates) {
  const ConvCase c{70, 4, {0, 1, 3, 6, 10, 30, 31}, 2};
  for (const int kind : {0, 1, 2}) {
    SCOPED_TRACE(kind);
    Operands operands(2);
    const ConvOperands conv(c, dtype(), &operands, {4, 2, 0, 5, 1, -1});
    const size_t before = operands.Random(dtype(), 6 * (c.kernel - 1) * c.channels);
    const size_t after = operands.Random(dtype(), 6 * (c.kernel - 1) * c.channels);
    ExpectLikeReference(device(), operands, tolerance(),
                        [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                          CausalConvArgs args = conv.Forward(p);
                          if (kind != 2) args.initial_states = p[before];
                          args.final_states = p[kind == 1 ? before : after];
                          return kernels.CausalConv(stream, args);
                        });
  }
}

// Gates beside other columns of a fused projection, or by themselves; gradients apart and in place;
// the backward pass gives the output's bits again.
TEST_P(KernelsSuite, GatedNormAndBackward) {
  struct Case {
    int64_t heads, head_dim, padding;
  };
  for (const Case& c : {Case{1, 4, 0}, Case{3, 5, 1}, Case{2, 30, 4}, Case{3, 64, 8},
                        Case{5, 128, 0}, Case{2, 256, 16}, Case{1, 300, 3}}) {
    for (const bool in_place : {false, true}) {
      const int64_t tokens = SizeIsTested(50 * c.heads * c.head_dim) ? 50 : 7;
      Operands operands(static_cast<uint64_t>(c.head_dim));
      const int64_t elements = tokens * c.heads * c.head_dim;
      const int64_t stride = c.heads * c.head_dim + c.padding;
      const size_t x = operands.Random(dtype(), elements, 0.3);
      const size_t weight = operands.Random(dtype(), c.head_dim);
      const size_t gate = operands.Random(dtype(), tokens * stride, 3.0);
      const size_t dgate = operands.Random(dtype(), tokens * stride);
      const size_t out = operands.Random(dtype(), elements);
      const size_t dout = operands.Random(dtype(), elements);
      const size_t dx = operands.Random(dtype(), elements);
      const size_t dweight = operands.Random(DType::kF32, c.head_dim);
      SCOPED_TRACE(testing::Message()
                   << tokens << "x" << c.heads << "x" << c.head_dim << ", in place " << in_place);
      const KernelCall call = [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        const GatedNormArgs forward{.dtype = dtype(),
                                    .tokens = tokens,
                                    .heads = c.heads,
                                    .head_dim = c.head_dim,
                                    .epsilon = 1e-3f,
                                    .x = p[x],
                                    .weight = p[weight],
                                    .gate = p[gate],
                                    .gate_stride = stride,
                                    .out = p[out]};
        MT_RETURN_IF_ERROR(kernels.GatedNorm(stream, forward));
        return kernels.GatedNormBackward(stream, {.forward = forward,
                                                  .dout = p[dout],
                                                  .dx = in_place ? p[x] : p[dx],
                                                  .dgate = in_place ? p[gate] : p[dgate],
                                                  .dgate_stride = stride,
                                                  .dweight = static_cast<float*>(p[dweight]),
                                                  .add_dweight = in_place});
      };
      ExpectLikeReference(device(), operands, tolerance(), call);
      const auto got = RunOn(device(), operands, call);
      ExpectSame(got[dout], got[out], "in place, " + NameOf(operands, dout));
    }
  }
}

TEST_P(KernelsSuite, GatedNormInPlace) {
  Operands operands(8);
  const size_t x = operands.Random(dtype(), 3 * 40), weight = operands.Random(dtype(), 40);
  std::vector<float> gates(3 * 40, 0.5f);
  gates[0] = -1e4f, gates[1] = -88.0f, gates[2] = 0.0f, gates[3] = 90.0f, gates[4] = 1e4f;
  const size_t gate = operands.Values(dtype(), gates);
  ExpectLikeReference(device(), operands, tolerance(),
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        return kernels.GatedNorm(stream, {.dtype = dtype(),
                                                          .tokens = 3,
                                                          .heads = 1,
                                                          .head_dim = 40,
                                                          .epsilon = 1e-6f,
                                                          .x = p[x],
                                                          .weight = p[weight],
                                                          .gate = p[gate],
                                                          .gate_stride = 40,
                                                          .out = p[x]});
                      });
}

}  // namespace megatrain
