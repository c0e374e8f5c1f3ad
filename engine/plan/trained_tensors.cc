#include "engine/plan/trained_tensors.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

bool Matches(const std::string& pattern, const std::string& name, const ModelDescription& config) {
  if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  return config.tied_embeddings && name == kEmbeddingTensorName &&
         fnmatch(pattern.c_str(), kHeadTensorName, 0) == 0;
}

// The names that a pattern may match. Some tensors are not trained, whatever a job says, and the
// parts of a tensor have one name.
std::vector<std::string> TensorNames(const ModelLayout& layout) {
  std::vector<std::string> names;
  std::set<std::string> parts;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    if (tensor.is_never_trained()) return;
    if (tensor.elements < tensor.whole_elements() && !parts.insert(tensor.name).second) return;
    names.push_back(tensor.name);
  });
  if (layout.model.tied_embeddings) names.push_back(kHeadTensorName);
  return names;
}

// Returns the number of insertions, deletions and substitutions after which `pattern`, in which *
// stands for any text, matches `name`.
int Distance(const std::string& pattern, const std::string& name) {
  // Rows of the table of prefix distances, as for the edit distance of two texts.
  std::vector<int> last(name.size() + 1), row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) last[j] = static_cast<int>(j);
  for (const char c : pattern) {
    row[0] = last[0] + (c == '*' ? 0 : 1);
    for (size_t j = 1; j <= name.size(); ++j) {
      row[j] = c == '*' ? std::min(last[j], row[j - 1])
                        : std::min({last[j] + 1, row[j - 1] + 1,
                                    last[j - 1] + (c == name[j - 1] || c == '?' ? 0 : 1)});
    }
    std::swap(last, row);
  }
  return last[name.size()];
}

std::string NearNames(const std::string& pattern, std::vector<std::string> names) {
  constexpr size_t kComparedMax = 2000;  // the first layers have the names of all
  constexpr size_t kNamed = 3;
  names.resize(std::min(names.size(), kComparedMax));
  std::vector<std::pair<int, std::string>> by_distance;
  for (std::string& name : names) {
    by_distance.emplace_back(Distance(pattern, name), std::move(name));
  }
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  by_distance.resize(std::min(by_distance.size(), kNamed));
  return absl::StrJoin(by_distance, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second);
  });
}

absl::Status CheckMatches(const std::string& key, const std::string& pattern,
                          const ModelLayout& layout) {
  std::vector<std::string> names = TensorNames(layout);
  const bool found = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return Matches(pattern, name, layout.model);
  });
  if (found) return absl::OkStatus();
  bool never_trained = false;
  ForEachTensor(layout, [&](int, const TensorSpec& tensor) {
    never_trained |= tensor.is_never_trained() && Matches(pattern, tensor.name, layout.model);
  });
  if (never_trained) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": \"", pattern, "\" matches only tensors that no job trains; leave it out"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      key, ": \"", pattern, "\" matches no tensor of the model; near it are ",
      NearNames(pattern, std::move(names)), " (* stands for any text, dots included)"));
}

}  // namespace

absl::StatusOr<ModelLayout> BuildTrainingLayout(const ModelDescription& config,
                                                const JobSpec& spec) {
  const std::vector<std::string>& freeze = spec.training.freeze;
  const std::vector<JobSpec::Optimizer::Group>& groups = spec.optimizer.groups;
  const ModelLayout plain = BuildModelLayout(config);
  if (freeze.empty() && groups.empty()) return plain;
  for (size_t i = 0; i < freeze.size(); ++i) {
    MT_RETURN_IF_ERROR(CheckMatches(absl::StrCat("training.freeze[", i, "]"), freeze[i], plain));
  }
  std::vector<bool> counts(groups.size()), trains(groups.size());
  ModelLayout layout = BuildModelLayout(config, [&](const std::string& name) {
    const auto matches = [&](const std::string& pattern) { return Matches(pattern, name, config); };
    TensorTraits traits;
    traits.frozen = std::any_of(freeze.begin(), freeze.end(), matches);
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& one) { return matches(one.match); });
    if (group != groups.end()) {
      counts[group - groups.begin()] = true;
      if (!traits.frozen) trains[group - groups.begin()] = true;
      traits.rate_group = static_cast<int>(group - groups.begin()) + 1;
    }
    return traits;
  });
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string key = absl::StrCat("optimizer.groups[", i, "].match");
    MT_RETURN_IF_ERROR(CheckMatches(key, groups[i].match, plain));
    if (trains[i]) continue;
    if (counts[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": training.freeze freezes every tensor that \"", groups[i].match,
                       "\" gives a rate; leave the group or the pattern out"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": every tensor that \"", groups[i].match,
        "\" matches belongs to an earlier group, and the first one counts; put it before that"));
  }
  if (layout.trained_parameters == 0) {
    return absl::InvalidArgumentError(
        "training.freeze: every tensor of the model is frozen, so there is nothing to train; leave "
        "out a pattern");
  }
  return layout;
}

}  // namespace megatrain
