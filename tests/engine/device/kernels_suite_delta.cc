// The suite's tests of the gated delta rule.
#include <cstring>
#include <vector>

#include "engine/base/status.h"
#include "tests/engine/device/delta_cases.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

TEST_P(KernelsSuite, GatedDelta) {
  for (const DeltaCase& shape : DeltaCases()) {
    if (!SizeIsTested(shape.elements())) continue;
    Operands operands(1);
    KernelCall call;
    MakeGatedDelta(shape, dtype(), false, &operands, &call);
    SCOPED_TRACE(shape.Name());
    ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 4e-6 : 3e-3, call);
  }
}

TEST_P(KernelsSuite, GatedDeltaBackward) {
  for (const DeltaCase& shape : DeltaCases()) {
    if (!SizeIsTested(shape.elements())) continue;
    Operands operands(2);
    KernelCall call;
    MakeGatedDelta(shape, dtype(), true, &operands, &call);
    SCOPED_TRACE(shape.Name());
    ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 8e-6 : 3e-3, call);
  }
}

// Decays that differ by orders of magnitude from token to token, and a beta of 0 and of 1.
TEST_P(KernelsSuite, GatedDeltaOfExtremeGates) {
  constexpr int64_t kTokens = 70, kDim = 8;
  Operands operands(3);
  const DocumentOperands documents(&operands, {0, kTokens});
  std::vector<float> as(kTokens, -9.0f), bs(kTokens, 0.5f);
  for (size_t t = 3; t < as.size(); t += 7) {
    constexpr float kChoices[] = {-100.0f, 0.0f, 30.0f, 100.0f};
    as[t] = kChoices[t / 7 % 4];
    bs[t - 1] = t % 2 == 0 ? 120.0f : -120.0f;
  }
  const DeltaOperands delta({1, 1, kDim, kDim, {0, kTokens}}, dtype(), true, &operands);
  const size_t a = operands.Values(dtype(), as), b = operands.Values(dtype(), bs);
  const size_t a_log = operands.Values(dtype(), {2.0f}), dt_bias = operands.Values(dtype(), {0.5f});
  ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 8e-6 : 3e-3,
                      [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                        GatedDeltaBackwardArgs args = delta.Backward(kernels, p, documents);
                        args.forward.a = p[a];
                        args.forward.b = p[b];
                        args.forward.a_stride = args.forward.b_stride = 1;
                        args.forward.a_log = p[a_log];
                        args.forward.dt_bias = p[dt_bias];
                        MT_RETURN_IF_ERROR(kernels.GatedDelta(stream, args.forward));
                        return kernels.GatedDeltaBackward(stream, args);
                      });
}

// The bits of a document are those that it has alone.
TEST_P(KernelsSuite, GatedDeltaDoesNotDependOnPacking) {
  constexpr int64_t kFirst = 3, kTokens = 137, kAll = 205;
  const DeltaCase shape{2, 4, 12, 20, {0, kFirst, kFirst + kTokens, 141, kAll}, -4};
  Operands operands(5);
  const DocumentOperands packed(&operands, shape.starts), alone(&operands, {0, kTokens});
  const DeltaOperands delta(shape, dtype(), true, &operands);
  const auto run = [&](const DocumentOperands& documents, int64_t first) {
    return RunOn(
        device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
          MT_RETURN_IF_ERROR(kernels.GatedDelta(stream, delta.Forward(p, documents, first)));
          return kernels.GatedDeltaBackward(stream, delta.Backward(kernels, p, documents, first));
        });
  };
  const auto in_pack = run(packed, 0), by_itself = run(alone, kFirst);
  for (const size_t operand : {delta.out, delta.dq, delta.dk, delta.dv, delta.da, delta.db}) {
    const std::vector<char>&a = in_pack[operand].bytes, &b = by_itself[operand].bytes;
    constexpr size_t kBehind = 80;  // tokens of all such operands
    const size_t token = a.size() / (kAll + kBehind), begin = kFirst * token;
    EXPECT_EQ(std::memcmp(&a[begin], &b[begin], kTokens * token), 0) << "operand " << operand;
  }
}

// A workspace for more tokens may have fewer bytes: it is for fewer key heads at once.
TEST_P(KernelsSuite, GatedDeltaBackwardTakesAWorkspaceForOneKeyHead) {
  const DeltaCase shape{3, 6, 12, 20, {0, 5, 75}, -4};
  const int64_t group = shape.value_heads / shape.key_heads;
  Operands operands(8);
  const DocumentOperands documents(&operands, shape.starts);
  const DeltaOperands delta(shape, dtype(), true, &operands);
  const auto run = [&](bool one_head) {
    return RunOn(device(), operands,
                 [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                   GatedDeltaBackwardArgs args = delta.Backward(kernels, p, documents);
                   if (one_head) {
                     // The cuda kernels keep two sums of each token and value head besides.
                     const int64_t bytes =
                         kernels.GatedDeltaBackwardWorkspaceBytes(
                             {shape.tokens(), 1, group, shape.key_dim, shape.value_dim}) +
                         (shape.value_heads - group) * 2 * shape.tokens() * int64_t{sizeof(float)};
                     EXPECT_LT(bytes, args.workspace_bytes);
                     args.workspace_bytes = bytes;
                   }
                   MT_RETURN_IF_ERROR(kernels.GatedDelta(stream, args.forward));
                   return kernels.GatedDeltaBackward(stream, args);
                 });
  };
  const auto at_once = run(false), in_turn = run(true);
  for (const size_t operand : {delta.dq, delta.dk, delta.dv, delta.da, delta.db}) {
    ExpectSame(in_turn[operand], at_once[operand], NameOf(operands, operand));
  }
}

// Sequences that go on from states: rows in any order, a document without one, and the states
// written over those that are read. Two calls give what one gives for the whole.
TEST_P(KernelsSuite, GatedDeltaWithStates) {
  const DeltaCase shape{2, 4, 12, 20, {0, 5, 75, 76, 90}, -4};
  const int64_t state = shape.value_heads * shape.key_dim * shape.value_dim;
  for (const bool in_place : {false, true}) {
    for (const bool is_new : {false, true}) {
      if (in_place && is_new) continue;
      SCOPED_TRACE(testing::Message() << "in place " << in_place << ", new " << is_new);
      Operands operands(6);
      const DocumentOperands documents(&operands, shape.starts, {3, 0, -1, 2});
      const DeltaOperands delta(shape, dtype(), false, &operands);
      const size_t before = operands.Random(DType::kF32, 4 * state);
      const size_t after = operands.Random(DType::kF32, 4 * state);
      ExpectLikeReference(device(), operands, dtype() == DType::kF32 ? 4e-6 : 3e-3,
                          [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
                            GatedDeltaArgs args = delta.Forward(p, documents);
                            if (!is_new) args.initial_states = static_cast<float*>(p[before]);
                            args.final_states = static_cast<float*>(p[in_place ? before : after]);
                            return kernels.GatedDelta(stream, args);
                          });
    }
  }
}

TEST_P(KernelsSuite, GatedDeltaGoesOnFromItsStates) {
  constexpr int64_t kTokens = 100, kFirst = 70;
  const DeltaCase shape{1, 2, 16, 8, {0, kTokens}, -4};
  const int64_t state = shape.value_heads * shape.key_dim * shape.value_dim;
  Operands operands(7);
  const DocumentOperands whole(&operands, shape.starts), first(&operands, {0, kFirst}, {0});
  const DocumentOperands last(&operands, {0, kTokens - kFirst}, {0});
  const DeltaOperands delta(shape, dtype(), false, &operands);
  const size_t states = operands.Random(DType::kF32, state);
  const auto at_once =
      RunOn(device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        return kernels.GatedDelta(stream, delta.Forward(p, whole));
      });
  const auto in_turn =
      RunOn(device(), operands, [&](Kernels& kernels, Stream& stream, const std::vector<void*>& p) {
        GatedDeltaArgs args = delta.Forward(p, first);
        args.final_states = static_cast<float*>(p[states]);
        MT_RETURN_IF_ERROR(kernels.GatedDelta(stream, args));
        args = delta.Forward(p, last, kFirst);
        args.initial_states = args.final_states = static_cast<float*>(p[states]);
        return kernels.GatedDelta(stream, args);
      });
  ExpectClose(in_turn[delta.out], at_once[delta.out], dtype() == DType::kF32 ? 4e-6 : 3e-3,
              "out, " + NameOf(operands, delta.out), &operands.all()[delta.out]);
}

}  // namespace megatrain
