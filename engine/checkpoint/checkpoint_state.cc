#include "engine/checkpoint/checkpoint_state.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/file.h"

namespace megatrain {
namespace {

const char* PrecisionName(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

const std::string* Find(const std::map<std::string, std::string>& spec, const std::string& key) {
  const auto it = spec.find(key);
  return it == spec.end() ? nullptr : &it->second;
}

std::string Quoted(const std::string* value) {
  return value == nullptr ? "nothing" : value->empty() ? "\"\"" : *value;
}

}  // namespace

bool Evaluations::Add(int64_t step, double loss) {
  const bool better = std::isfinite(loss) && (best_step == 0 || loss < best_loss);
  if (!better) {
    ++since_best;
    return false;
  }
  *this = {step, loss, 0};
  return true;
}

std::string ModelFingerprint(const ModelLayout& layout) {
  const ModelConfig& c = layout.config;
  // %a prints a double exactly. Heads and kv_heads with equal products give equal shapes.
  std::string text = absl::StrFormat(
      "%s heads=%d kv_heads=%d head_dim=%d tied=%d epsilon=%a rope=%d,%a,%a,%a,%a,%d,%a,%a,%a\n",
      ModelFamilyName(c.family), c.heads, c.kv_heads, c.head_dim, c.tied_embeddings ? 1 : 0,
      c.norm_epsilon, static_cast<int>(c.rope.type), c.rope.theta, c.rope.factor,
      c.rope.low_frequency_factor, c.rope.high_frequency_factor, c.rope.original_positions,
      c.rope.beta_fast, c.rope.beta_slow, c.rope.attention_factor);
  // In the order in which nothing is frozen: that is another key's matter.
  ForEachTensor(BuildModelLayout(c), [&](int tile, const TensorSpec& tensor) {
    absl::StrAppend(&text, tile, " ", tensor.name, " [", absl::StrJoin(tensor.shape, ","), "]\n");
  });
  return HashBytes(text);
}

std::string NewRunName() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

std::string RunName(const CheckpointState& state) {
  if (!state.run.empty()) return state.run;
  std::string text = absl::StrCat(state.model_fingerprint, "\n", PrecisionName(state.weight_dtype),
                                  "\n", state.seed, "\n", state.data_fingerprint, "\n");
  for (const auto& [key, value] : state.spec) absl::StrAppend(&text, key, "=", value, "\n");
  return HashBytes(text);
}

absl::Status CheckResumable(const CheckpointState& saved, const CheckpointState& wanted,
                            const std::vector<std::string>& allowed,
                            std::vector<AllowedChange>* changes) {
  constexpr char kWhatToDo[] =
      "; restore it, or start anew in another checkpoint.directory (a resumed run may change only "
      "training.steps, training.epochs, training.eval_every, training.keep_best, "
      "training.stop_after_worse, training.skip_steps, checkpoint, output, report and engine, "
      "paths whose files hold the same, and with --allow-change also optimizer and schedule)";
  if (saved.model_fingerprint != wanted.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint is of another model: its fingerprint is ", saved.model_fingerprint,
        ", that of model.path is ", wanted.model_fingerprint, kWhatToDo));
  }
  if (saved.weight_dtype != wanted.weight_dtype) {
    return absl::FailedPreconditionError(absl::StrCat(
        "training.precision differs: the checkpoint has ", PrecisionName(saved.weight_dtype),
        ", the job ", PrecisionName(wanted.weight_dtype), kWhatToDo));
  }
  std::set<std::string> keys;
  for (const auto& [key, value] : saved.spec) keys.insert(key);
  for (const auto& [key, value] : wanted.spec) keys.insert(key);
  std::vector<std::string> differences;
  for (const std::string& key : keys) {
    const std::string* before = Find(saved.spec, key);
    const std::string* now = Find(wanted.spec, key);
    if (before != nullptr && now != nullptr && *before == *now) continue;
    if (std::find(allowed.begin(), allowed.end(), key.substr(0, key.find('.'))) != allowed.end()) {
      const auto text = [](const std::string* value) { return value == nullptr ? "" : *value; };
      if (changes != nullptr) changes->push_back({saved.step, key, text(before), text(now)});
      continue;
    }
    differences.push_back(absl::StrCat(key, " differs: the checkpoint has ", Quoted(before),
                                       ", the job ", Quoted(now)));
  }
  if (!differences.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(absl::StrJoin(differences, "; "), kWhatToDo));
  }
  if (saved.seed != wanted.seed) {
    return absl::FailedPreconditionError(absl::StrCat("training.seed differs: the checkpoint has ",
                                                      saved.seed, ", the job ", wanted.seed,
                                                      kWhatToDo));
  }
  if (saved.data_fingerprint != wanted.data_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the training data (data.train, or the tokenizer's files) changed since the checkpoint was "
        "written: its fingerprint was ",
        saved.data_fingerprint, ", now it is ", wanted.data_fingerprint, kWhatToDo));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
