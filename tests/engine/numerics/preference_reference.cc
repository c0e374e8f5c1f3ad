#include "tests/engine/numerics/preference_reference.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

namespace megatrain {
namespace {

constexpr char kDirectory[] = "tests/golden/models/preference";

Rewards ReadRewards(const nlohmann::json& json) {
  return {json.at("chosen"), json.at("rejected"), json.at("margins"), json.at("accuracies")};
}

PreferenceReference::Curve ReadCurve(const nlohmann::json& json) {
  PreferenceReference::Curve curve;
  curve.losses = {json.at("loss").get<std::vector<double>>(),
                  json.at("gradient_norm").get<std::vector<double>>()};
  for (const nlohmann::json& rewards : json.at("rewards")) {
    curve.rewards.push_back(ReadRewards(rewards));
  }
  return curve;
}

}  // namespace

std::vector<std::string> PreferenceFamilies() { return {"llama", "llama_tied"}; }

PreferenceReference LoadPreferenceReference(const std::string& family) {
  const std::map<std::string, PreferenceLossKind> kinds = {
      {"sigmoid", PreferenceLossKind::kSigmoid},
      {"robust", PreferenceLossKind::kRobust},
      {"hinge", PreferenceLossKind::kHinge},
      {"ipo", PreferenceLossKind::kIpo}};
  const std::string directory = kDirectory;
  const auto all = nlohmann::json::parse(ReadBytes(directory + "/preference.json"));
  const nlohmann::json& json = all.at("families").at(family);
  PreferenceReference reference;
  reference.directory = std::filesystem::absolute("tests/golden/models/" + family);
  reference.pairs = std::filesystem::absolute(directory + "/pairs.jsonl");
  reference.curve_steps = all.at("steps");
  reference.curve_pairs = all.at("pairs");
  reference.curve_beta = all.at("beta");
  const nlohmann::json& batch = json.at("batch");
  size_t pair = 0;
  for (size_t s = 0; s < batch.at("input_ids").size(); ++s) {
    Sequence& sequence = reference.sequences.emplace_back();
    sequence.input_ids = batch["input_ids"][s].get<std::vector<int32_t>>();
    sequence.labels = batch["labels"][s].get<std::vector<int32_t>>();
    sequence.position_ids = batch["position_ids"][s].get<std::vector<int32_t>>();
    sequence.document_ids = batch["document_ids"][s].get<std::vector<int32_t>>();
    sequence.pairs = true;
    int32_t documents = 0;
    for (const int32_t id : sequence.document_ids) documents = std::max(documents, id + 1);
    for (int32_t i = 0; i < documents; i += 2, ++pair) {
      for (int side = 0; side < 2; ++side) {
        sequence.reference_logps.push_back(batch.at("reference_logps")[pair][side]);
      }
    }
  }
  for (const nlohmann::json& loss : json.at("losses")) {
    reference.losses.push_back(
        {{kinds.at(loss.at("kind")), loss.at("beta"), loss.at("label_smoothing")},
         loss.at("loss"),
         loss.at("gradient_norm"),
         ReadRewards(loss.at("rewards"))});
  }
  reference.gradients = ReadFloatTensors(directory + "/" + family + ".safetensors");
  for (const auto& [index, clipping] : {std::pair{0, "unclipped"}, std::pair{1, "clipped"}}) {
    const nlohmann::json& curves = json.at("curves").at(clipping);
    reference.fp32[index] = ReadCurve(curves.at("fp32"));
    reference.fp64[index] = ReadCurve(curves.at("fp64"));
    reference.bf16[index] = ReadCurve(curves.at("bf16"));
  }
  return reference;
}

}  // namespace megatrain
