#include "engine/device/cuda/warm_up.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/base/status.h"
#include "engine/device/kernel_args.h"

namespace megatrain {
namespace {

constexpr int64_t kTokens = 64;
// The tokens for attention by a library: cuDNN's graphs of unpacked documents are made for
// multiples of this.
constexpr int64_t kLibraryTokens = 512;
constexpr int64_t kHeads = 2, kKvHeads = 1, kHeadDim = 64, kWidth = kHeads * kHeadDim;
constexpr int64_t kVocabulary = 128;
constexpr int64_t kQkvWidth = (kHeads + 2 * kKvHeads) * kHeadDim;

class Layer {
 public:
  Layer(Kernels& kernels, Stream& stream, DType dtype) : k_(kernels), s_(stream), dtype_(dtype) {}

  // Device memory: zeros, each as large as the largest operand needs.
  struct Memory {
    char *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr, *workspace = nullptr;
    int64_t workspace_bytes = 0;
    const int32_t* positions = nullptr;  // [tokens]: 0, 1, ...
    // [tokens, 2]: one document of kTokens, and one of kLibraryTokens.
    const int32_t *bounds = nullptr, *library_bounds = nullptr;
  };

  absl::Status Run(const Memory& m) {
    MT_RETURN_IF_ERROR(Products(m));
    MT_RETURN_IF_ERROR(Attention(m, AttentionChoice::kOwn, kTokens));
    MT_RETURN_IF_ERROR(Attention(m, AttentionChoice::kOwn, kTokens, {.softcap = 50, .sinks = m.a}));
    MT_RETURN_IF_ERROR(Norms(m));
    MT_RETURN_IF_ERROR(Elements(m));
    MT_RETURN_IF_ERROR(Sums(m));
    MT_RETURN_IF_ERROR(Cache(m));
    MT_RETURN_IF_ERROR(Experts(m));
    MT_RETURN_IF_ERROR(DeltaNet(m));
    return Updates(m);
  }

  // Both directions over one document.
  absl::Status Attention(const Memory& m, AttentionChoice choice, int64_t tokens,
                         const AttentionShaping& shaping = {}) {
    const int32_t starts[] = {0, static_cast<int32_t>(tokens)};
    const auto at = [&](char* memory, int64_t elements) {
      return memory + elements * DTypeBytes(dtype_);
    };
    AttentionBackwardArgs args;
    AttentionArgs& f = args.forward;
    f.dtype = dtype_;
    f.tokens = tokens;
    f.heads = kHeads;
    f.kv_heads = kKvHeads;
    f.head_dim = f.value_dim = kHeadDim;
    f.scale = 0.125f;
    f.choice = choice;
    f.shaping = shaping;
    f.document_starts = starts;
    f.documents = 1;
    f.document_bounds = tokens == kLibraryTokens ? m.library_bounds : m.bounds;
    f.q = m.a;
    f.k = at(m.a, kWidth);
    f.v = at(m.a, kWidth + kKvHeads * kHeadDim);
    f.q_stride = f.k_stride = f.v_stride = kQkvWidth;
    f.out = m.b;
    f.lse = Floats(m.c);
    MT_RETURN_IF_ERROR(k_.Attention(s_, f));
    args.dout = m.b;
    args.dq = m.d;
    args.dk = at(m.d, kWidth);
    args.dv = at(m.d, kWidth + kKvHeads * kHeadDim);
    args.dq_stride = args.dk_stride = args.dv_stride = kQkvWidth;
    if (shaping.sinks != nullptr) args.dsinks = Floats(m.c) + kHeads * tokens;
    args.workspace = m.workspace;
    args.workspace_bytes = m.workspace_bytes;
    return k_.AttentionBackward(s_, args);
  }

 private:
  static float* Floats(char* memory) { return reinterpret_cast<float*>(memory); }

  // Forward, the gradient by the input, and by the weight.
  absl::Status Products(const Memory& m) {
    MatMulArgs args{.m = kTokens, .n = kWidth, .k = kWidth, .dtype = dtype_, .out_dtype = dtype_};
    args.a = m.a;
    args.b = m.b;
    args.out = m.c;
    args.a_stride = args.b_stride = args.out_stride = kWidth;
    MT_RETURN_IF_ERROR(k_.MatMul(s_, args));
    args.transpose_b = true;
    args.bias = m.d;
    MT_RETURN_IF_ERROR(k_.MatMul(s_, args));
    args.bias = nullptr;
    args.addend = m.c;
    MT_RETURN_IF_ERROR(k_.MatMul(s_, args));
    args.transpose_b = false;
    args.transpose_a = true;
    args.m = kWidth;
    args.k = kTokens;
    args.out_dtype = DType::kF32;
    return k_.MatMul(s_, args);
  }

  absl::Status Norms(const Memory& m) {
    RmsNormArgs norm{.dtype = dtype_, .rows = kTokens, .width = kWidth, .epsilon = 1e-5f};
    norm.x = m.a;
    norm.weight = m.b;
    norm.y = m.c;
    norm.x_stride = norm.y_stride = kWidth;
    norm.rstd = Floats(m.d);
    MT_RETURN_IF_ERROR(k_.RmsNorm(s_, norm));
    norm.addend = m.c;
    MT_RETURN_IF_ERROR(k_.RmsNorm(s_, norm));
    RmsNormBackwardArgs back{.dtype = dtype_, .rows = kTokens, .width = kWidth};
    back.x = m.a;
    back.weight = m.b;
    back.rstd = Floats(m.d);
    back.dy = back.dx = m.c;
    back.x_stride = back.dy_stride = back.dx_stride = kWidth;
    back.dweight = Floats(m.workspace);
    return k_.RmsNormBackward(s_, back);
  }

  absl::Status Elements(const Memory& m) {
    RopeArgs rope{.dtype = dtype_,
                  .tokens = kTokens,
                  .heads = kHeads,
                  .head_dim = kHeadDim,
                  .rotary_dim = kHeadDim};
    rope.x = m.a;
    rope.stride = kWidth;
    rope.positions = m.positions;
    rope.cosine = Floats(m.b);
    rope.sine = Floats(m.c);
    MT_RETURN_IF_ERROR(k_.Rope(s_, rope));
    rope.interleaved = true;
    MT_RETURN_IF_ERROR(k_.Rope(s_, rope));
    CopyHeadsArgs copy{
        .dtype = dtype_, .tokens = kTokens, .heads = kHeads, .width = kHeadDim, .from = m.a};
    copy.to = m.b;
    copy.to_stride = kWidth;
    copy.to_head_stride = kHeadDim;
    MT_RETURN_IF_ERROR(k_.CopyHeads(s_, copy));
    SumHeadsArgs sum{
        .dtype = dtype_, .tokens = kTokens, .heads = kHeads, .width = kHeadDim, .x = m.a};
    sum.x_head_stride = kHeadDim;
    sum.out = m.b;
    MT_RETURN_IF_ERROR(k_.SumHeads(s_, sum));
    MT_RETURN_IF_ERROR(Gates(m));
    MT_RETURN_IF_ERROR(
        k_.Embedding(s_, {dtype_, kTokens, kWidth, kVocabulary, m.positions, m.a, m.b}));
    return k_.EmbeddingBackward(
        s_, {dtype_, kTokens, kWidth, kVocabulary, m.positions, m.positions, m.b, Floats(m.c)});
  }

  absl::Status Gates(const Memory& m) {
    for (const GluActivation activation :
         {GluActivation::kSilu, GluActivation::kGeluTanh, GluActivation::kClampedSilu}) {
      MT_RETURN_IF_ERROR(k_.Glu(s_, {dtype_, kTokens, kWidth, m.a, m.b, activation}));
      MT_RETURN_IF_ERROR(k_.GluBackward(s_, {dtype_, kTokens, kWidth, m.a, m.b, m.a, activation}));
    }
    SigmoidGateArgs gate{
        .dtype = dtype_, .tokens = kTokens, .heads = kHeads, .head_dim = kHeadDim, .x = m.a};
    gate.gate = m.b;
    gate.gate_stride = kWidth;
    gate.gate_head_stride = kHeadDim;
    gate.out = m.c;
    MT_RETURN_IF_ERROR(k_.SigmoidGate(s_, gate));
    SigmoidGateBackwardArgs back{.forward = gate, .dout = m.c};
    back.dgate = m.b;
    back.dgate_stride = kWidth;
    back.dgate_head_stride = kHeadDim;
    back.dx = m.d;
    return k_.SigmoidGateBackward(s_, back);
  }

  absl::Status Sums(const Memory& m) {
    CrossEntropyArgs loss{.dtype = dtype_, .tokens = kTokens, .vocabulary = kVocabulary};
    loss.logits = Floats(m.a);
    loss.logits_stride = kVocabulary;
    loss.labels = m.positions;
    loss.scale = 1;
    loss.losses = Floats(m.b);
    for (const float softcap : {0.0f, 30.0f}) {
      loss.softcap = softcap;
      MT_RETURN_IF_ERROR(k_.CrossEntropy(s_, loss));
    }
    PreferenceLossArgs preference;
    preference.pairs = 1;
    preference.bounds = preference.labels = m.positions;
    preference.losses = loss.losses;
    preference.reference = reinterpret_cast<double*>(m.c);
    preference.results = reinterpret_cast<PreferenceResult*>(m.workspace);
    preference.weights = Floats(m.d);
    MT_RETURN_IF_ERROR(k_.PreferenceLoss(s_, preference));
    MT_RETURN_IF_ERROR(k_.BiasBackward(s_, dtype_, kTokens, kWidth, m.a, kWidth,
                                       Floats(m.workspace),
                                       /*add=*/true));
    double* const sum = reinterpret_cast<double*>(m.workspace);
    MT_RETURN_IF_ERROR(k_.SumOfSquares(s_, Floats(m.b), kTokens, sum));
    MT_RETURN_IF_ERROR(k_.Sum(s_, Floats(m.b), kTokens, sum));
    MT_RETURN_IF_ERROR(k_.Scale(s_, dtype_, m.c, kTokens * kWidth, m.a));
    return k_.CastToBf16InPlace(s_, m.c, kTokens * kWidth);
  }

  absl::Status Cache(const Memory& m) {
    CachedAttentionArgs args{
        .dtype = dtype_, .tokens = kTokens, .heads = kHeads, .kv_heads = kKvHeads};
    args.head_dim = args.value_dim = kHeadDim;
    args.first_rows = args.positions = m.positions;  // any rows that are there
    args.q = args.k = args.v = m.a;
    args.q_stride = args.k_stride = args.v_stride = kQkvWidth;
    args.cache = m.c;
    args.out = m.b;
    MT_RETURN_IF_ERROR(k_.StoreInCache(s_, args));
    return k_.CachedAttention(s_, args);
  }

  absl::Status Experts(const Memory& m) {
    constexpr int64_t kExperts = 8, kChosen = 2, kRows = kTokens * kChosen;
    int32_t* const choice = reinterpret_cast<int32_t*>(m.workspace);
    int32_t* const offsets = choice + kRows;
    int32_t* const assignments = offsets + kExperts + 1;
    int32_t* const rows = assignments + kRows;
    float* const weights = Floats(m.b);
    RouteBackwardArgs route{.forward = {.tokens = kTokens, .experts = kExperts, .chosen = kChosen},
                            .dtype = dtype_};
    route.forward.logits = Floats(m.a);
    route.forward.choice = choice;
    route.forward.weights = weights;
    route.dweights = weights;
    route.dlogits = m.c;
    MT_RETURN_IF_ERROR(k_.Route(s_, route.forward));
    MT_RETURN_IF_ERROR(k_.RouteBackward(s_, route));
    double* const probability = reinterpret_cast<double*>(m.d);
    MT_RETURN_IF_ERROR(k_.RouterSums(s_, {kTokens, kExperts, route.forward.logits, probability}));
    MT_RETURN_IF_ERROR(
        k_.SortAssignments(s_, {kTokens, kExperts, kChosen, choice, offsets, assignments, rows}));
    const ExpertRows range{0, kRows, kTokens, kChosen, assignments, rows};
    MT_RETURN_IF_ERROR(k_.GatherRows(s_, {dtype_, kWidth, range, m.a, weights, m.c}));
    MT_RETURN_IF_ERROR(k_.AddRows(s_, {dtype_, kWidth, range, m.c, weights, Floats(m.d)}));
    MT_RETURN_IF_ERROR(k_.WeighRows(s_, {dtype_, kWidth, range, weights, m.a, m.c, weights}));
    return k_.Add(s_, {kTokens, kWidth, {DType::kF32, m.d, kWidth}, {}, dtype_, m.a, kWidth});
  }

  // The convolution's weight, the gates and what is kept lie in the workspace.
  absl::Status DeltaNet(const Memory& m) {
    const int32_t starts[] = {0, static_cast<int32_t>(kTokens)};
    const auto at = [&](char* memory, int64_t elements) {
      return memory + elements * DTypeBytes(dtype_);
    };
    CausalConvBackwardArgs conv;
    CausalConvArgs& c = conv.forward;
    c.dtype = dtype_;
    c.documents = {kTokens, 1, starts, m.bounds};
    c.channels = kQkvWidth;
    c.kernel = 4;
    c.x = m.a;
    c.weight = m.workspace;
    c.y = m.b;
    conv.dy = m.b;
    conv.dx = m.d;
    c.x_stride = c.y_stride = conv.dy_stride = conv.dx_stride = kQkvWidth;
    conv.dweight = Floats(m.c);
    MT_RETURN_IF_ERROR(k_.CausalConv(s_, c));
    MT_RETURN_IF_ERROR(k_.CausalConvBackward(s_, conv));

    GatedDeltaBackwardArgs delta;
    GatedDeltaArgs& d = delta.forward;
    d.dtype = dtype_;
    d.documents = c.documents;
    d.key_heads = d.value_heads = 1;
    d.key_dim = d.value_dim = kHeadDim;
    d.q = m.a;
    d.k = at(m.a, kHeadDim);
    d.v = at(m.a, 2 * kHeadDim);
    d.q_stride = d.k_stride = d.v_stride = kQkvWidth;
    d.a = d.b = d.a_log = d.dt_bias = m.a;
    d.a_stride = d.b_stride = 1;
    d.out = m.b;
    MT_RETURN_IF_ERROR(k_.GatedDelta(s_, d));
    delta.dout = m.b;
    delta.dq = m.d;
    delta.dk = at(m.d, kHeadDim);
    delta.dv = at(m.d, 2 * kHeadDim);
    delta.dq_stride = delta.dk_stride = delta.dv_stride = kQkvWidth;
    delta.da = m.c;
    delta.db = at(m.c, kTokens);
    delta.da_stride = delta.db_stride = 1;
    delta.workspace = m.workspace;
    delta.workspace_bytes = m.workspace_bytes;
    MT_RETURN_IF_ERROR(k_.GatedDeltaBackward(s_, delta));

    GatedNormBackwardArgs norm;
    norm.forward = {dtype_, kTokens, 1, kHeadDim, 1e-6f, m.a, m.a, m.b, kHeadDim, m.c};
    norm.dout = m.c;
    norm.dx = m.d;
    norm.dgate = m.b;
    norm.dgate_stride = kHeadDim;
    norm.dweight = Floats(m.workspace);
    MT_RETURN_IF_ERROR(k_.GatedNorm(s_, norm.forward));
    return k_.GatedNormBackward(s_, norm);
  }

  absl::Status Updates(const Memory& m) {
    AdamWArgs args;
    args.constants.epsilon = 1;
    args.span.gradient = m.a;
    args.span.weights = m.b;
    if (dtype_ == DType::kBF16) args.span.remainder = reinterpret_cast<int16_t*>(m.c);
    args.span.exp_avg = Floats(m.d);
    args.span.exp_avg_sq = Floats(m.d) + kTokens;
    args.span.elements = kTokens;
    args.untrusted = reinterpret_cast<int32_t*>(m.workspace);
    for (const DType gradient : {DType::kF32, DType::kBF16}) {
      args.gradient_dtype = gradient;
      MT_RETURN_IF_ERROR(k_.AdamW(s_, args));
    }
    return absl::OkStatus();
  }

  Kernels& k_;
  Stream& s_;
  const DType dtype_;
};

}  // namespace

absl::Status WarmUp(Device& device) {
  // The largest operand: queries, keys and values of the library's attention.
  constexpr int64_t kOperandBytes = kLibraryTokens * kQkvWidth * int64_t{sizeof(float)};
  Kernels& kernels = device.kernels();
  Layer::Memory m;
  m.workspace_bytes = kernels.AttentionBackwardWorkspaceBytes({.dtype = DType::kBF16,
                                                               .tokens = kLibraryTokens,
                                                               .sequence = kLibraryTokens,
                                                               .heads = kHeads,
                                                               .kv_heads = kKvHeads,
                                                               .head_dim = kHeadDim,
                                                               .value_dim = kHeadDim});
  m.workspace_bytes =
      std::max(m.workspace_bytes,
               kernels.GatedDeltaBackwardWorkspaceBytes({kTokens, 1, 1, kHeadDim, kHeadDim}));
  constexpr int64_t kIndexBytes = (3 * kTokens + 2 * kLibraryTokens) * int64_t{sizeof(int32_t)};
  const int64_t bytes = 4 * kOperandBytes + kIndexBytes + m.workspace_bytes;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceMemory> memory, device.Allocate(bytes));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                      device.CreateStream(StreamUse::kCompute));
  char* const begin = static_cast<char*>(memory->data());
  m.a = begin;
  m.b = m.a + kOperandBytes;
  m.c = m.b + kOperandBytes;
  m.d = m.c + kOperandBytes;
  char* const index = m.d + kOperandBytes;
  m.workspace = index + kIndexBytes;
  m.positions = reinterpret_cast<int32_t*>(index);
  m.bounds = m.positions + kTokens;
  m.library_bounds = m.bounds + 2 * kTokens;
  std::vector<int32_t> index_of(3 * kTokens + 2 * kLibraryTokens, 0);
  std::iota(index_of.begin(), index_of.begin() + kTokens, 0);
  for (int64_t t = 0; t < kTokens; ++t) index_of[kTokens + 2 * t + 1] = kTokens;
  // The library may not take the call, and our own kernels need them then.
  for (int64_t t = 0; t < kLibraryTokens; ++t) index_of[3 * kTokens + 2 * t + 1] = kLibraryTokens;
  MT_RETURN_IF_ERROR(kernels.Zero(*stream, begin, bytes));
  MT_RETURN_IF_ERROR(device.Upload(*stream, index, index_of.data(), kIndexBytes));
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    MT_RETURN_IF_ERROR(Layer(kernels, *stream, dtype).Run(m));
  }
  if (device.CheckAttention(AttentionChoice::kLibrary).ok()) {
    MT_RETURN_IF_ERROR(
        Layer(kernels, *stream, DType::kBF16).Attention(m, AttentionChoice::kAuto, kLibraryTokens));
  }
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> done, device.CreateEvent());
  MT_RETURN_IF_ERROR(device.Record(*stream, *done));
  return device.Synchronize(*done);
}

}  // namespace megatrain
