#include "tests/engine/numerics/model_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace megatrain {
namespace {

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

ReferenceBatch ReadBatch(const nlohmann::json& json) {
  ReferenceBatch batch;
  for (size_t s = 0; s < json.at("input_ids").size(); ++s) {
    Sequence sequence;
    sequence.input_ids = json["input_ids"][s].get<std::vector<int32_t>>();
    sequence.labels = json["labels"][s].get<std::vector<int32_t>>();
    sequence.position_ids = json["position_ids"][s].get<std::vector<int32_t>>();
    sequence.document_ids = json["document_ids"][s].get<std::vector<int32_t>>();
    const std::vector<int32_t>& ids = sequence.input_ids;
    for (size_t t = 0; t < ids.size(); ++t) {
      const bool padding = sequence.document_ids[t] < 0;
      if (!padding) ++batch.input_tokens;
      // Counted here, not by PredictionTargets: this is the reference.
      if (!padding && t + 1 < ids.size() &&
          sequence.document_ids[t] == sequence.document_ids[t + 1] &&
          sequence.labels[t + 1] != kMaskedLabel) {
        ++batch.predictions;
      }
    }
    batch.sequences.push_back(std::move(sequence));
  }
  return batch;
}

LossCurve ReadCurve(const nlohmann::json& json) {
  return {json.at("loss").get<std::vector<double>>(),
          json.at("gradient_norm").get<std::vector<double>>()};
}

BatchReference ReadBatchReference(const nlohmann::json& json, const char* errors,
                                  const std::string& tensors) {
  BatchReference reference;
  reference.loss = json.at("loss");
  reference.gradient_norm = json.at("gradient_norm");
  reference.logits_error = json.at(errors).at("logits");
  reference.gradient_errors = json.at(errors).at("gradients").get<std::map<std::string, double>>();
  reference.gradients = ReadFloatTensors(tensors);
  auto logits = reference.gradients.extract("logits");
  if (logits.empty()) Fail(tensors + " has no tensor `logits`");
  reference.logits = std::move(logits.mapped());
  return reference;
}

}  // namespace

std::vector<std::string> ReferenceFamilies() {
  return {"llama",
          "llama_tied",
          "llama3",
          "llama_linear",
          "llama_yarn",
          "qwen2",
          "qwen3",
          "mistral",
          "qwen2_window",
          "ministral3",
          "smollm3",
          "phi3",
          "granite",
          "olmo2",
          "olmo3",
          "glm4",
          "gemma2",
          "gemma3",
          "exaone4",
          "seed_oss",
          "ernie4_5",
          "mixtral",
          "qwen3_moe",
          "qwen3_moe_plain",
          "gpt_oss",
          "glm4_moe",
          "deepseek_v3",
          "deepseek_v3_plain",
          "qwen3_next",
          "qwen3_5_moe",
          "gemma4",
          "gemma4_moe",
          "gemma4_shared",
          "gemma3_wrapper",
          "mistral3_wrapper",
          "qwen3_5_wrapper",
          "gemma4_wrapper"};
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A reader of its own: a mistake in the engine's would hide here.
NamedTensors ReadFloatTensors(const std::string& path) {
  const std::string bytes = ReadBytes(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  NamedTensors tensors;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string dtype = tensor.at("dtype");
    const size_t begin = tensor.at("data_offsets")[0], end = tensor.at("data_offsets")[1];
    const char* data = bytes.data() + 8 + header_bytes + begin;
    std::vector<float>& values = tensors[name];
    if (dtype == "F32") {
      values.resize((end - begin) / sizeof(float));
      std::memcpy(values.data(), data, end - begin);
    } else if (dtype == "BF16") {
      std::vector<uint16_t> halves((end - begin) / sizeof(uint16_t));
      std::memcpy(halves.data(), data, end - begin);
      for (const uint16_t half : halves) {
        values.push_back(std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
      }
    } else if (dtype == "I16") {
      std::vector<int16_t> whole((end - begin) / sizeof(int16_t));
      std::memcpy(whole.data(), data, end - begin);
      values.assign(whole.begin(), whole.end());
    } else {
      Fail(path + ": " + name + " is neither F32, BF16 nor I16");
    }
  }
  return tensors;
}

ModelReference LoadModelReference(const std::string& family) {
  ModelReference reference;
  reference.directory = "tests/golden/models/" + family;
  const auto json = nlohmann::json::parse(ReadBytes(reference.directory + "/reference.json"));
  reference.batch = ReadBatch(json.at("batch"));
  reference.logit_rows = json.at("logit_rows").get<std::vector<int64_t>>();
  const std::string fp32 = reference.directory + "/gradients.safetensors";
  const std::string bf16 = reference.directory + "/gradients_bf16_weights.safetensors";
  const bool rounding_matters = std::ifstream(bf16).good();
  reference.fp32 = ReadBatchReference(json.at("fp32"), "distance_from_fp64", fp32);
  reference.bf16 =
      ReadBatchReference(json.at("bf16"), "transformers_error", rounding_matters ? bf16 : fp32);

  const auto& settings = json.at("curve_settings");
  CurveSettings& curve = reference.curve_settings;
  curve.sequence_length = settings.at("sequence_length");
  curve.global_batch = settings.at("global_batch");
  curve.steps = settings.at("steps");
  curve.warmup_steps = settings.at("warmup_steps");
  curve.learning_rate = settings.at("learning_rate");
  curve.beta1 = settings.at("beta1");
  curve.beta2 = settings.at("beta2");
  curve.epsilon = settings.at("epsilon");
  curve.weight_decay = settings.at("weight_decay");
  for (const int clipped : {0, 1}) {
    const auto& curves = json.at("curves").at(clipped ? "clipped" : "unclipped");
    reference.fp32_curve[clipped] = ReadCurve(curves.at("fp32"));
    reference.fp64_curve[clipped] = ReadCurve(curves.at("fp64"));
    reference.bf16_curve[clipped] = ReadCurve(curves.at("bf16"));
  }
  return reference;
}

std::vector<ChoiceReference> LoadChoices() {
  std::vector<ChoiceReference> choices;
  const auto json =
      nlohmann::ordered_json::parse(ReadBytes("tests/golden/models/choices/choices.json"));
  for (const auto& [name, entry] : json.items()) {
    ChoiceReference& choice = choices.emplace_back();
    choice.name = name;
    choice.family = entry.at("family");
    choice.freeze = entry.at("freeze").get<std::vector<std::string>>();
    for (const auto& group : entry.at("groups")) {
      choice.groups.push_back({group.at("match"), group.value("learning_rate", -1.0),
                               group.value("weight_decay", -1.0)});
    }
    for (const int clipped : {0, 1}) {
      const auto& curves = entry.at("curves").at(clipped ? "clipped" : "unclipped");
      choice.fp32_curve[clipped] = ReadCurve(curves.at("fp32"));
      choice.fp64_curve[clipped] = ReadCurve(curves.at("fp64"));
      choice.bf16_curve[clipped] = ReadCurve(curves.at("bf16"));
    }
  }
  return choices;
}

double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  if (norm == 0) Fail("a relative error against zeros says nothing");
  return std::sqrt(difference / norm);
}

double Bf16ErrorBound(double transformers_error, size_t elements) {
  constexpr double kErrorMax = 3e-2;
  if (elements >= kSmallTensor) return std::min(kErrorMax, 1.25 * transformers_error);
  const double draw = 1 + 1 / std::sqrt(static_cast<double>(elements));
  return draw * std::min(kErrorMax, 1.5 * transformers_error);
}

void SmallTensors::Add(double error, double transformers_error, size_t elements) {
  if (elements >= kSmallTensor) return;
  squares_ += error / transformers_error * (error / transformers_error);
  ++count_;
}

double SmallTensors::Ratio() const { return count_ == 0 ? 0 : std::sqrt(squares_ / count_); }

double CurveDistance(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double distance = std::abs(actual[i] / expected[i] - 1);
    if (!(distance <= largest)) largest = distance;  // keeps a NaN
  }
  return largest;
}

double CurveDeviation(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    sum += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  }
  return std::sqrt(sum);
}

}  // namespace megatrain
