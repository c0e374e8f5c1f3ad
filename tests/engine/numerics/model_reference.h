// The references in tests/golden/models, as make_model_references.py writes them.
#ifndef MEGATRAIN_TESTS_ENGINE_NUMERICS_MODEL_REFERENCE_H_
#define MEGATRAIN_TESTS_ENGINE_NUMERICS_MODEL_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/data/sequences/sequence.h"

namespace megatrain {

using NamedTensors = std::map<std::string, std::vector<float>>;

// Losses, and gradient norms before clipping, of each step.
struct LossCurve {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
};

// Packed documents, masked labels, padding; counted plainly, not by the engine.
struct ReferenceBatch {
  std::vector<Sequence> sequences;
  int64_t predictions = 0;
  int64_t input_tokens = 0;
};

// One precision's results on ModelReference::batch.
struct BatchReference {
  double loss = 0;
  double gradient_norm = 0;
  NamedTensors gradients;     // by HF name
  std::vector<float> logits;  // [logit_rows.size(), vocabulary]
  // Relative errors (norm of the difference over the norm): of transformers' FP32 against FP64, or
  // of transformers in BF16 against FP32 on the same BF16-rounded weights.
  double logits_error = 0;
  std::map<std::string, double> gradient_errors;
};

struct CurveSettings {
  int64_t sequence_length = 0, global_batch = 0, steps = 0, warmup_steps = 0;
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
};

struct ModelReference {
  std::string directory;  // a HF directory that holds tokens.bin too
  ReferenceBatch batch;
  std::vector<int64_t> logit_rows;  // sequence * sequence_length + position
  BatchReference fp32, bf16;
  CurveSettings curve_settings;
  // [0] without clipping, [1] clipped to a norm of 1
  LossCurve fp32_curve[2], fp64_curve[2], bf16_curve[2];
};

// "llama", "llama_tied", ...
std::vector<std::string> ReferenceFamilies();

// Ends the test run with a message if a file is missing.
ModelReference LoadModelReference(const std::string& family);

// A job that freezes tensors or gives groups of them rates of their own, on a family's tokens.
struct ChoiceReference {
  struct Rates {
    std::string match;
    double learning_rate = -1, weight_decay = -1;  // negative: the job's
  };
  std::string name, family;
  std::vector<std::string> freeze;
  std::vector<Rates> groups;
  LossCurve fp32_curve[2], fp64_curve[2], bf16_curve[2];  // as in ModelReference
};
std::vector<ChoiceReference> LoadChoices();

// The tensors of a safetensors file that are F32 or BF16, and the I16 as they are.
NamedTensors ReadFloatTensors(const std::string& path);

// The whole file.
std::string ReadBytes(const std::string& path);

// Norm of the difference over the norm of `expected`, which must not be zero.
double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected);

inline constexpr size_t kSmallTensor = 1000;  // elements
// Returns how far BF16 may be from FP32 in a tensor of `elements` where transformers in BF16 is
// `transformers_error` from it: 1.25 times as far, and at most 3e-2. Below 1,000 elements the norm
// of an error is a draw: the ratio of two norms varies by about 1 / sqrt(elements), and by more
// where few tokens make the tensor's gradient, as that of an expert. So a small tensor may be
// 1.5 (1 + 1 / sqrt(elements)) times as far, and at most 3e-2 (1 + 1 / sqrt(elements)); small ones
// are held to 1.25 together (SmallTensors). With AVX2 the ratios have a mean of 0.76, on an H200 of
// 0.83, in large and small tensors alike; the deviations are 0.06 and 0.08 in large ones, 0.15 and
// 0.17 in small ones. The largest on the H200 are 1.17 (large) and 1.70 (of 6 elements).
double Bf16ErrorBound(double transformers_error, size_t elements);

// The errors in BF16 of a model's small tensors over those of transformers, together.
class SmallTensors {
 public:
  // Does nothing for a tensor that is not small.
  void Add(double error, double transformers_error, size_t elements);
  // The root of the mean square of the ratios; 0 if there are none. At most 1.25 is right.
  double Ratio() const;

 private:
  double squares_ = 0;
  int count_ = 0;
};

// The largest |actual / expected - 1| over the steps.
double CurveDistance(const std::vector<double>& actual, const std::vector<double>& expected);

// sqrt(sum over steps of (actual - expected)^2).
double CurveDeviation(const std::vector<double>& actual, const std::vector<double>& expected);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_NUMERICS_MODEL_REFERENCE_H_
