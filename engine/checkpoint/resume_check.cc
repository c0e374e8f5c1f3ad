#include "engine/checkpoint/resume_check.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/dtype.h"

namespace megatrain {
namespace {

const std::string* Find(const std::map<std::string, std::string>& spec, const std::string& key) {
  const auto it = spec.find(key);
  return it == spec.end() ? nullptr : &it->second;
}

std::string Quoted(const std::string* value) {
  return value == nullptr ? "nothing" : value->empty() ? "\"\"" : *value;
}

}  // namespace

absl::Status CheckResumable(const CheckpointState& saved, const CheckpointState& wanted,
                            const std::vector<std::string>& allowed,
                            std::vector<AllowedChange>* changes) {
  constexpr char kWhatToDo[] =
      "; restore it, or start anew in another checkpoint.directory (a resumed run may change only "
      "training.steps, training.epochs, training.eval_every, training.keep_best, "
      "training.stop_after_worse, training.skip_steps, training.sample_prompts, "
      "training.sample_tokens, checkpoint, output, report and engine, "
      "paths whose files hold the same, and with --allow-change also optimizer and schedule)";
  if (saved.model_fingerprint != wanted.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint is of another model: its fingerprint is ", saved.model_fingerprint,
        ", that of model.path is ", wanted.model_fingerprint, kWhatToDo));
  }
  if (!saved.carried_digest.empty() && saved.carried_digest != wanted.carried_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the tensors beside the text model in model.path, which are not trained but are part of "
        "every checkpoint, have other names, types or shapes than when the checkpoint was written",
        kWhatToDo));
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
