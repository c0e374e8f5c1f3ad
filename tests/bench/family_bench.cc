// The time of one layer of each dense family over Llama's of the same shapes, forward and backward,
// on the cpu device:
//   bazel run //tests/bench:family_bench -- [THREADS] [ROUNDS] [TOKENS] [HIDDEN]
// All families have the same heads and the same width of the MLP. `whole` is the ratio of the
// layers' times. Calls of kernels that Llama's layer does not have (norms of heads, a gate, a
// product with more rows) are a family's extra parts; without them the ratio is `apart`, which
// shows what the description costs. A call that takes the place of one of Llama's counts as extra
// by the difference. Families take turns, Llama's layer before every third of them, and the medians
// of the rounds' ratios count.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_pool.h"
#include "engine/data/sequences/document_bounds.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/device.h"
#include "engine/hf/config/model_family.h"
#include "engine/hf/config_json.h"
#include "engine/hf/random_weights.h"
#include "engine/model/layer/decoder_layer.h"
#include "engine/model/rope.h"
#include "tests/bench/kernel_timing.h"

namespace megatrain {
namespace {

constexpr char kLlama[] = "llama";
constexpr double kBound = 1.05;
// So many families are held against one run of Llama's layer, which comes before them.
constexpr size_t kFamiliesOfLlama = 3;

struct Sizes {
  int64_t tokens = 768, hidden = 1024;
  int64_t head_dim() const { return 128; }
  int64_t heads() const { return std::max<int64_t>(1, hidden / head_dim()); }
  int64_t intermediate() const { return hidden * 11 / 4; }
};

// Calls of a kernel with the same sizes.
struct Calls {
  int count = 0;
  double seconds = 0;
};
using CallsByKernel = std::map<std::string, Calls>;

// The cpu device's kernels, with the time of each call that a layer makes.
class TimedKernels : public CpuKernels {
 public:
  TimedKernels(ThreadPool* pool, const Stopwatch& stopwatch)
      : CpuKernels(pool), stopwatch_(stopwatch) {}
  CallsByKernel& calls() { return calls_; }

  absl::Status MatMul(Stream& s, const MatMulArgs& a) override {
    const std::string key =
        absl::StrCat("product ", a.m, " x ", a.n, " x ", a.k, a.transpose_a ? " of gradients" : "",
                     a.transpose_b ? " forward" : "", a.addend != nullptr ? " added" : "");
    return Time(key, [&] { return CpuKernels::MatMul(s, a); });
  }
  absl::Status RmsNorm(Stream& s, const RmsNormArgs& a) override {
    const std::string key = absl::StrCat("norm of ", a.groups, " x ", a.width);
    return Time(key, [&] { return CpuKernels::RmsNorm(s, a); });
  }
  absl::Status RmsNormBackward(Stream& s, const RmsNormBackwardArgs& a) override {
    const std::string key = absl::StrCat("norm backward of ", a.groups, " x ", a.width);
    return Time(key, [&] { return CpuKernels::RmsNormBackward(s, a); });
  }
  absl::Status Rope(Stream& s, const RopeArgs& a) override {
    const std::string key = absl::StrCat("rope of ", a.heads, a.interleaved ? " in pairs" : "");
    return Time(key, [&] { return CpuKernels::Rope(s, a); });
  }
  absl::Status Attention(Stream& s, const AttentionArgs& a) override {
    return Time(absl::StrCat("attention", Text(a.shaping)),
                [&] { return CpuKernels::Attention(s, a); });
  }
  absl::Status AttentionBackward(Stream& s, const AttentionBackwardArgs& a) override {
    return Time(absl::StrCat("attention backward", Text(a.forward.shaping)),
                [&] { return CpuKernels::AttentionBackward(s, a); });
  }
  absl::Status Glu(Stream& s, const GluArgs& a) override {
    return Time(a.activation == GluActivation::kSilu ? "unit" : "unit with GELU",
                [&] { return CpuKernels::Glu(s, a); });
  }
  absl::Status GluBackward(Stream& s, const GluBackwardArgs& a) override {
    return Time(a.activation == GluActivation::kSilu ? "unit backward" : "unit backward with GELU",
                [&] { return CpuKernels::GluBackward(s, a); });
  }
  absl::Status SigmoidGate(Stream& s, const SigmoidGateArgs& a) override {
    return Time("gate", [&] { return CpuKernels::SigmoidGate(s, a); });
  }
  absl::Status SigmoidGateBackward(Stream& s, const SigmoidGateBackwardArgs& a) override {
    return Time("gate backward", [&] { return CpuKernels::SigmoidGateBackward(s, a); });
  }
  absl::Status Add(Stream& s, const AddArgs& a) override {
    return Time("addition", [&] { return CpuKernels::Add(s, a); });
  }
  absl::Status Scale(Stream& s, DType dtype, void* x, int64_t n, const void* factor) override {
    return Time("factor", [&] { return CpuKernels::Scale(s, dtype, x, n, factor); });
  }
  absl::Status BiasBackward(Stream& s, DType dtype, int64_t rows, int64_t n, const void* dy,
                            int64_t stride, float* dbias, bool add) override {
    return Time(absl::StrCat("bias backward of ", n), [&] {
      return CpuKernels::BiasBackward(s, dtype, rows, n, dy, stride, dbias, add);
    });
  }

 private:
  static std::string Text(const AttentionShaping& shaping) {
    return absl::StrCat(shaping.softcap > 0 ? ", capped" : "",
                        shaping.sinks != nullptr ? ", with sinks" : "");
  }
  absl::Status Time(const std::string& key, const std::function<absl::Status()>& call) {
    Calls& calls = calls_[key];
    ++calls.count;
    calls.seconds += stopwatch_.Seconds(call);
    return absl::OkStatus();
  }

  const Stopwatch stopwatch_;
  CallsByKernel calls_;
};

// Mixtures have no layer of Llama's shape; expert_bench measures their products.
bool IsMixture(const std::string& family) {
  static const auto& mixtures =
      *new std::set<std::string>{"deepseek_v3", "glm4_moe",         "gpt_oss",   "mixtral",
                                 "qwen3_moe",   "qwen3_5_moe_text", "qwen3_next"};
  return mixtures.contains(family);
}

// Returns a model of one layer.
ModelDescription Describe(const std::string& family, const Sizes& sizes) {
  nlohmann::json config = {{"model_type", family},
                           {"vocab_size", 256},
                           {"hidden_size", sizes.hidden},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", sizes.heads()},
                           {"num_key_value_heads", sizes.heads()},
                           {"head_dim", sizes.head_dim()},
                           {"intermediate_size", sizes.intermediate()},
                           {"max_position_embeddings", sizes.tokens},
                           {"pad_token_id", nullptr}};
  if (family == "gemma4_text") {
    config["global_head_dim"] = sizes.head_dim();
    config["hidden_size_per_layer_input"] = 0;
  }
  if (family == "ministral3") {
    config["rope_parameters"] = {{"rope_type", "yarn"},
                                 {"rope_theta", 1e6},
                                 {"factor", 16.0},
                                 {"original_max_position_embeddings", 16384},
                                 {"llama_4_scaling_beta", 0.1}};
  }
  if (family == "qwen3_5_text") config["layer_types"] = {"full_attention"};
  const auto model = ParseModelDescription(config.dump(), family);
  Check(model.status());
  return *model;
}

using Memory = std::unique_ptr<char, decltype(&std::free)>;
Memory ZeroedMemory(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  const size_t whole = static_cast<size_t>((bytes / kPage + 1) * kPage);
  char* const memory = static_cast<char*>(std::aligned_alloc(kPage, whole));
  std::memset(memory, 0, whole);
  return {memory, &std::free};
}

// A layer, its weights, and one micro-batch of a single document.
class Layer {
 public:
  Layer(const std::string& family, DType dtype, const Sizes& sizes, TimedKernels* kernels)
      : family_(family),
        kernels_(*kernels),
        layout_(BuildModelLayout(Describe(family, sizes))),
        weights_(ZeroedMemory(layout_.tiles[1].elements * DTypeBytes(dtype))),
        positions_(static_cast<size_t>(sizes.tokens)),
        starts_({0, static_cast<int32_t>(sizes.tokens)}),
        bounds_(static_cast<size_t>(2 * sizes.tokens)) {
    const ModelDescription& model = layout_.model;
    const int64_t tokens = sizes.tokens;
    Tile tile;
    tile.layout = &layout_.tiles[1];
    tile.weight_dtype = dtype;
    tile.weights = weights_.get();
    InitializeTile(model, 1, tile);
    std::iota(positions_.begin(), positions_.end(), 0);
    WriteDocumentBounds(starts_, bounds_.data());
    view_.tokens = tokens;
    view_.positions = positions_.data();
    view_.document_starts = starts_.data();
    view_.document_bounds = bounds_.data();
    view_.documents = 1;
    for (const RopeConfig& rope : model.ropes) {
      const int64_t angles = tokens * rope.rotary_dim / 2;
      std::vector<float>& table = rope_tables_.emplace_back(static_cast<size_t>(2 * angles));
      ropes_.push_back({table.data(), table.data() + angles});
      RopeTables(rope, tokens, 0, tokens, ropes_.back().cosine, ropes_.back().sine);
    }
    context_.layout = &layout_;
    context_.dtype = dtype;
    context_.kernels = &kernels_;
    context_.stream = &stream_;
    context_.ropes = ropes_;
    context_.chunk_tokens = LayerChunkTokens(tokens);
    x_ = RandomValues(dtype, tokens * sizes.hidden);
    y_ = dh_ = x_;
  }

  // Takes its memory from `base` on, which all layers may share. Returns the bytes; with null it
  // only counts them.
  int64_t Place(char* base) {
    const ModelDescription& model = layout_.model;
    const DType dtype = context_.dtype;
    const int64_t tokens = view_.tokens, size = DTypeBytes(dtype);
    const LayerBackwardWidths widths = BackwardWidths(model);
    constexpr KeepLevel kLevel = KeepLevel::kEverything;
    void *kept = nullptr, *scratch = nullptr, *chunk = nullptr;
    scratch_.workspace_bytes = AttentionWorkspaceBytes(model, dtype, tokens, tokens, kernels_);
    TensorCursor cursor{base};
    cursor.Take(&gradient_, layout_.tiles[1].elements * 4);
    cursor.Take(&scratch_.dmixed, tokens * widths.mixed * size);
    cursor.Take(&scratch_.dprojected, tokens * widths.projected * size);
    cursor.Take(&scratch_.workspace, scratch_.workspace_bytes);
    cursor.Take(&kept, KeptBytes(model, dtype, tokens, kLevel));
    cursor.Take(&scratch, LayerScratchBytes(model, dtype, tokens));
    cursor.Take(&chunk, LayerChunkBytes(model, dtype, context_.chunk_tokens));
    activations_ = PlaceActivations(model, 0, dtype, tokens, context_.chunk_tokens, kLevel, kept,
                                    scratch, chunk);
    return cursor.offset;
  }

  // Returns the seconds of both passes, and sets `calls` to those of the kernels.
  double Seconds(const Stopwatch& stopwatch, CallsByKernel* calls) {
    kernels_.calls().clear();
    dh_ = x_;
    const double seconds = stopwatch.Seconds([&]() -> absl::Status {
      const absl::Status forward =
          DecoderLayerForward(context_, weights_.get(), view_, x_.data(), activations_, y_.data());
      if (!forward.ok()) return forward;
      return DecoderLayerBackward(context_, weights_.get(), view_, x_.data(), activations_,
                                  scratch_, dh_.data(), gradient_,
                                  /*first=*/true);
    });
    *calls = kernels_.calls();
    return seconds;
  }
  const std::string& family() const { return family_; }

 private:
  const std::string family_;
  TimedKernels& kernels_;
  NoStream stream_;
  const ModelLayout layout_;
  const Memory weights_;
  float* gradient_ = nullptr;
  std::vector<int32_t> positions_, starts_, bounds_;
  std::vector<std::vector<float>> rope_tables_;
  std::vector<RopeTable> ropes_;
  std::vector<char> x_, y_, dh_;
  MicroBatchView view_;
  LayerContext context_;
  LayerBackwardScratch scratch_;
  LayerActivations activations_;
};

// Returns the seconds of the calls that `a` has more of than `b`.
double SecondsMore(const CallsByKernel& a, const CallsByKernel& b) {
  double seconds = 0;
  for (const auto& [kernel, calls] : a) {
    const auto found = b.find(kernel);
    const int more = calls.count - (found == b.end() ? 0 : found->second.count);
    if (more > 0) seconds += calls.seconds * more / calls.count;
  }
  return seconds;
}

void Run(DType dtype, const TimingArguments& arguments, const Sizes& sizes) {
  const Stopwatch stopwatch(arguments.clock, arguments.rounds);
  ThreadPool pool(arguments.threads);
  TimedKernels kernels(&pool, stopwatch);
  std::vector<std::unique_ptr<Layer>> layers;
  const auto add = [&](const std::string& family) {
    layers.push_back(std::make_unique<Layer>(family, dtype, sizes, &kernels));
  };
  add(kLlama);
  for (const std::string& family : ModelFamilyNames()) {
    if (family != kLlama && !IsMixture(family)) add(family);
  }
  int64_t bytes = 0;
  for (const auto& layer : layers) bytes = std::max(bytes, layer->Place(nullptr));
  const Memory memory = ZeroedMemory(bytes);
  for (const auto& layer : layers) layer->Place(memory.get());
  std::vector<std::vector<double>> whole(layers.size()), extra(layers.size()), apart(layers.size());
  for (int round = -1; round < arguments.rounds; ++round) {  // the first warms up
    CallsByKernel of_llama;
    double llama = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i % kFamiliesOfLlama == 0) llama = layers[0]->Seconds(stopwatch, &of_llama);
      CallsByKernel calls;
      const double seconds = layers[i]->Seconds(stopwatch, &calls);
      if (round < 0) continue;
      const double more = SecondsMore(calls, of_llama) - SecondsMore(of_llama, calls);
      whole[i].push_back(seconds / llama);
      extra[i].push_back(more);
      apart[i].push_back((seconds - more) / llama);
    }
  }
  std::printf("\n%s, %ld tokens, hidden %ld, %d threads, medians of %d; bound of `apart` %.2f\n",
              DTypeName(dtype), static_cast<long>(sizes.tokens), static_cast<long>(sizes.hidden),
              pool.threads(), arguments.rounds, kBound);
  for (size_t i = 0; i < layers.size(); ++i) {
    std::printf("  %-14s whole %.3f, extra parts %7.2f ms, apart %.3f\n",
                layers[i]->family().c_str(), Median(whole[i]), Median(extra[i]) * 1e3,
                Median(apart[i]));
  }
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  const megatrain::TimingArguments arguments =
      megatrain::ReadTimingArguments(std::min(argc, 3), argv);
  megatrain::Sizes sizes;
  if (argc > 3) sizes.tokens = std::max(1L, std::atol(argv[3]));
  if (argc > 4) sizes.hidden = std::max(128L, std::atol(argv[4]) / 128 * 128);
  for (const megatrain::DType dtype : {megatrain::DType::kF32, megatrain::DType::kBF16}) {
    megatrain::Run(dtype, arguments, sizes);
  }
  return 0;
}
