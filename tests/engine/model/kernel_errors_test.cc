// The errors of kernels come out of the layer templates, wherever in a step they occur: a device
// that is lost or a shape that it does not take must end a run, not spoil it.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/device/reference_kernels.h"
#include "engine/model/model_check.h"
#include "engine/model/model_layout.h"
#include "tests/engine/numerics/plain_step.h"

namespace megatrain {
namespace {

// Counts the calls, from 0, and fails that of one number.
class FailingKernels : public ReferenceKernels {
 public:
  explicit FailingKernels(int64_t failing) : failing_(failing) {}
  int64_t calls() const { return calls_; }
  static absl::Status ErrorOf(int64_t call) {
    return absl::DataLossError(absl::StrCat("call ", call));
  }

  absl::Status MatMul(Stream& s, const MatMulArgs& a) override {
    return Call(&Kernels::MatMul, s, a);
  }
  absl::Status RmsNorm(Stream& s, const RmsNormArgs& a) override {
    return Call(&Kernels::RmsNorm, s, a);
  }
  absl::Status RmsNormBackward(Stream& s, const RmsNormBackwardArgs& a) override {
    return Call(&Kernels::RmsNormBackward, s, a);
  }
  absl::Status Rope(Stream& s, const RopeArgs& a) override { return Call(&Kernels::Rope, s, a); }
  absl::Status CopyHeads(Stream& s, const CopyHeadsArgs& a) override {
    return Call(&Kernels::CopyHeads, s, a);
  }
  absl::Status SumHeads(Stream& s, const SumHeadsArgs& a) override {
    return Call(&Kernels::SumHeads, s, a);
  }
  absl::Status Attention(Stream& s, const AttentionArgs& a) override {
    return Call(&Kernels::Attention, s, a);
  }
  absl::Status AttentionBackward(Stream& s, const AttentionBackwardArgs& a) override {
    return Call(&Kernels::AttentionBackward, s, a);
  }
  absl::Status Glu(Stream& s, const GluArgs& a) override { return Call(&Kernels::Glu, s, a); }
  absl::Status GluBackward(Stream& s, const GluBackwardArgs& a) override {
    return Call(&Kernels::GluBackward, s, a);
  }
  absl::Status SigmoidGate(Stream& s, const SigmoidGateArgs& a) override {
    return Call(&Kernels::SigmoidGate, s, a);
  }
  absl::Status SigmoidGateBackward(Stream& s, const SigmoidGateBackwardArgs& a) override {
    return Call(&Kernels::SigmoidGateBackward, s, a);
  }
  absl::Status Route(Stream& s, const RouteArgs& a) override { return Call(&Kernels::Route, s, a); }
  absl::Status RouteBackward(Stream& s, const RouteBackwardArgs& a) override {
    return Call(&Kernels::RouteBackward, s, a);
  }
  absl::Status SortAssignments(Stream& s, const SortAssignmentsArgs& a) override {
    return Call(&Kernels::SortAssignments, s, a);
  }
  absl::Status GatherRows(Stream& s, const GatherRowsArgs& a) override {
    return Call(&Kernels::GatherRows, s, a);
  }
  absl::Status AddRows(Stream& s, const AddRowsArgs& a) override {
    return Call(&Kernels::AddRows, s, a);
  }
  absl::Status WeighRows(Stream& s, const WeighRowsArgs& a) override {
    return Call(&Kernels::WeighRows, s, a);
  }
  absl::Status Add(Stream& s, const AddArgs& a) override { return Call(&Kernels::Add, s, a); }
  absl::Status CausalConv(Stream& s, const CausalConvArgs& a) override {
    return Call(&Kernels::CausalConv, s, a);
  }
  absl::Status CausalConvBackward(Stream& s, const CausalConvBackwardArgs& a) override {
    return Call(&Kernels::CausalConvBackward, s, a);
  }
  absl::Status GatedDelta(Stream& s, const GatedDeltaArgs& a) override {
    return Call(&Kernels::GatedDelta, s, a);
  }
  absl::Status GatedDeltaBackward(Stream& s, const GatedDeltaBackwardArgs& a) override {
    return Call(&Kernels::GatedDeltaBackward, s, a);
  }
  absl::Status GatedNorm(Stream& s, const GatedNormArgs& a) override {
    return Call(&Kernels::GatedNorm, s, a);
  }
  absl::Status GatedNormBackward(Stream& s, const GatedNormBackwardArgs& a) override {
    return Call(&Kernels::GatedNormBackward, s, a);
  }
  absl::Status Embedding(Stream& s, const EmbeddingArgs& a) override {
    return Call(&Kernels::Embedding, s, a);
  }
  absl::Status EmbeddingBackward(Stream& s, const EmbeddingBackwardArgs& a) override {
    return Call(&Kernels::EmbeddingBackward, s, a);
  }
  absl::Status CrossEntropy(Stream& s, const CrossEntropyArgs& a) override {
    return Call(&Kernels::CrossEntropy, s, a);
  }
  absl::Status BiasBackward(Stream& s, DType dtype, int64_t rows, int64_t n, const void* dy,
                            int64_t stride, float* dbias, bool add) override {
    return Call(&Kernels::BiasBackward, s, dtype, rows, n, dy, stride, dbias, add);
  }
  absl::Status Sum(Stream& s, const float* x, int64_t n, double* sum) override {
    return Call(&Kernels::Sum, s, x, n, sum);
  }
  absl::Status Zero(Stream& s, void* x, int64_t bytes) override {
    return Call(&Kernels::Zero, s, x, bytes);
  }
  absl::Status Scale(Stream& s, DType dtype, void* x, int64_t n, const void* factor) override {
    return Call(&Kernels::Scale, s, dtype, x, n, factor);
  }

 private:
  template <typename Method, typename... Args>
  absl::Status Call(Method method, Stream& stream, const Args&... args) {
    const int64_t call = calls_++;
    if (call == failing_) return ErrorOf(call);
    return (sound_.*method)(stream, args...);
  }

  ReferenceKernels sound_;
  const int64_t failing_;
  int64_t calls_ = 0;
};

// A model of two layers.
struct Case {
  const char* name;
  std::function<void(ModelDescription&)> change;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Four experts in two tiles, in both layers.
void MakeSparse(ModelDescription& model, int64_t dense) {
  for (LayerDescription& layer : model.layers) {
    layer.feed_forward.intermediate = dense;
    layer.experts.count = 4;
    layer.experts.chosen = 2;
    layer.experts.intermediate = 5;
    layer.experts.experts_per_tile = 3;
  }
}

const Case kCases[] = {
    {"BiasesAndSinks",
     [](ModelDescription& model) {
       for (LayerDescription& layer : model.layers) {
         layer.attention.qkv_bias = layer.attention.output_bias = layer.attention.sinks = true;
       }
     }},
    {"NormsBehindTheParts",
     [](ModelDescription& model) {
       for (LayerDescription& layer : model.layers) {
         layer.attention_norms.post_norm = "attention_post_norm";
         layer.feed_forward_norms.post_norm = "feed_forward_post_norm";
         layer.attention.qk_norm = QkNorm::kFull;
       }
       model.layers[1].attention_norms.norm = model.layers[1].feed_forward_norms.norm = "";
     }},
    {"GatesAndARopeForEach",
     [](ModelDescription& model) {
       model.ropes.push_back(model.ropes[0]);
       for (LayerDescription& layer : model.layers) {
         layer.attention.output_gate = true;
         layer.attention.qk_norm = QkNorm::kHead;
         layer.attention.key_rope = 1;
       }
     }},
    {"SharedKeysAndPerLayerInputs",
     [](ModelDescription& model) {
       for (LayerDescription& layer : model.layers) {
         layer.attention.qk_norm = QkNorm::kHead;
         layer.attention.value_norm = true;
         layer.attention.key_set = 0;
         layer.per_layer_input = {.width = 3, .vocabulary = 7};
         layer.output_scale = true;
       }
       model.layers[0].attention.values_are_keys = true;
       model.layers[1].attention.projects_keys = false;
     }},
    {"Latents",
     [](ModelDescription& model) {
       model.ropes[0].rotary_dim = 2;
       for (LayerDescription& layer : model.layers) {
         layer.attention.kv_heads = 2;
         layer.attention.latent = {.key_value_rank = 6, .rotary_dim = 2, .value_dim = 3};
       }
       model.layers[0].attention.latent.query_rank = 5;
     }},
    {"ADeltaNet",
     [](ModelDescription& model) {
       model.layers[0].attention = AttentionDescription();
       model.layers[0].delta_net = {
           .key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 4, .kernel = 3};
     }},
    {"ExpertsAndASharedUnit",
     [](ModelDescription& model) {
       MakeSparse(model, 0);
       model.layers[0].attention_norms.post_norm = "attention_post_norm";
       ExpertsDescription& first = model.layers[0].experts;
       first.tensors = ExpertTensors::kTransposed;
       first.activation = GluActivation::kClampedSilu;
       first.limit = 7;
       first.slope = 1.7;
       first.bias = first.router.bias = first.router.correction = true;
       ExpertsDescription& second = model.layers[1].experts;
       second.shared_intermediate = 4;
       second.shared_gate = true;
     }},
    {"ADenseUnitBesideExperts",
     [](ModelDescription& model) {
       MakeSparse(model, 6);
       for (LayerDescription& layer : model.layers) {
         layer.feed_forward_norms.post_norm = "post_norm";
         layer.join = {{"experts_norm", "experts_post_norm"}, "dense_post_norm"};
         layer.experts.router.input_scale = "router.scale";
         layer.experts.router.expert_scales = "router.expert_scales";
         layer.output_scale = true;
       }
     }},
};

class KernelErrorsTest : public testing::TestWithParam<Case> {
 protected:
  KernelErrorsTest() {
    ModelDescription model = UniformModel({.vocabulary = 7,
                                           .hidden = 8,
                                           .layers = 2,
                                           .heads = 2,
                                           .kv_heads = 1,
                                           .head_dim = 4,
                                           .intermediate = 6,
                                           .max_positions = 16});
    GetParam().change(model);
    checked_ = CheckModel(model);
    if (!checked_.ok()) return;
    layout_ = BuildModelLayout(model);
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal(0, 0.3f);
    ForEachTensor(layout_, [&](int, const TensorSpec& tensor) {
      std::vector<float>& values = weights_[tensor.name_on_disk()];
      values.resize(static_cast<size_t>(tensor.whole_elements()));
      for (float& value : values) value = normal(random);
    });
    Sequence sequence;  // of two documents
    sequence.input_ids = sequence.labels = {1, 4, 6, 0, 4, 2};
    sequence.position_ids = {0, 1, 2, 0, 1, 2};
    sequence.document_ids = {0, 0, 0, 1, 1, 1};
    batch_.sequences = {sequence};
    batch_.predictions = 4;
  }

  absl::Status Step(FailingKernels& kernels, KeepLevel level) const {
    return PlainStep(kernels, layout_, weights_, DType::kF32, batch_,
                     /*sequences_per_micro_batch=*/1, level)
        .status;
  }

  absl::Status checked_;
  ModelLayout layout_;
  NamedTensors weights_;
  ReferenceBatch batch_;
};

TEST_P(KernelErrorsTest, TheErrorOfEachCallIsReturned) {
  ASSERT_TRUE(checked_.ok()) << checked_;
  for (const KeepLevel level : {KeepLevel::kNothing, KeepLevel::kCheapRecomputed}) {
    FailingKernels sound(/*failing=*/-1);
    const absl::Status status = Step(sound, level);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_GT(sound.calls(), 40) << "a step of two layers";
    for (int64_t call = 0; call < sound.calls(); ++call) {
      FailingKernels kernels(call);
      EXPECT_EQ(Step(kernels, level), FailingKernels::ErrorOf(call));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, KernelErrorsTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatrain
