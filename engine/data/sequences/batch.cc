#include "engine/data/sequences/batch.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/sequences/document_bounds.h"

namespace megatrain {
namespace {

// Appends a sequence to the arrays and to its micro-batch, which is the last one.
void Append(const Sequence& sequence, Batch& batch) {
  const auto append = [](const std::vector<int32_t>& from, std::vector<int32_t>& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  const std::vector<int32_t> targets = PredictionTargets(sequence);
  batch.predictions +=
      std::ssize(targets) - std::count(targets.begin(), targets.end(), kMaskedLabel);
  append(sequence.input_ids, batch.ids);
  append(sequence.position_ids, batch.positions);
  append(targets, batch.targets);
  const std::vector<int32_t>& documents = sequence.document_ids;
  int64_t& tokens = batch.micro_batch_tokens.back();
  AppendDocumentStarts(documents, tokens, batch.document_starts.back());
  const int64_t padding = tokens + std::count_if(documents.begin(), documents.end(),
                                                 [](int32_t id) { return id >= 0; });
  batch.input_tokens += padding - tokens;
  tokens += std::ssize(documents);
  if (padding < tokens) batch.padding.back().emplace_back(padding, tokens);
}

// Appends the pairs of a sequence whose first token is `begin` to the last micro-batch.
void AppendPairs(const Sequence& sequence, int64_t begin, Batch& batch) {
  const std::vector<int32_t>& documents = sequence.document_ids;
  std::vector<int32_t>& bounds = batch.pair_bounds.back();
  for (size_t t = 0; t < documents.size() && documents[t] >= 0;) {
    size_t end = t + 1;
    while (end < documents.size() && documents[end] == documents[t]) ++end;
    bounds.push_back(static_cast<int32_t>(begin + static_cast<int64_t>(t)));
    bounds.push_back(static_cast<int32_t>(begin + static_cast<int64_t>(end)));
    batch.pairs += documents[t] % 2;
    t = end;
  }
  std::vector<double>& logps = batch.reference_logps.back();
  logps.insert(logps.end(), sequence.reference_logps.begin(), sequence.reference_logps.end());
  logps.resize(bounds.size() / 2);
}

// Ends the last micro-batch.
void EndMicroBatch(Batch& batch) {
  const int64_t tokens = batch.micro_batch_tokens.back();
  batch.document_starts.back().push_back(static_cast<int32_t>(tokens));
  const int32_t* const ids = batch.ids.data() + (std::ssize(batch.ids) - tokens);
  std::vector<int32_t> sorted(static_cast<size_t>(tokens));
  std::iota(sorted.begin(), sorted.end(), 0);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [ids](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  batch.sorted_positions.insert(batch.sorted_positions.end(), sorted.begin(), sorted.end());
}

}  // namespace

Batch MakeBatch(int64_t step, absl::Span<const Sequence> sequences,
                int64_t sequences_per_micro_batch) {
  Batch batch;
  batch.step = step;
  if (!sequences.empty()) batch.sequence_length = std::ssize(sequences[0].input_ids);
  const size_t tokens = sequences.size() * static_cast<size_t>(batch.sequence_length);
  for (auto array : {&Batch::ids, &Batch::positions, &Batch::targets, &Batch::sorted_positions}) {
    (batch.*array).reserve(tokens);
  }
  const int64_t count = std::ssize(sequences);
  for (int64_t first = 0; first < count; first += sequences_per_micro_batch) {
    batch.micro_batch_tokens.push_back(0);
    batch.document_starts.emplace_back();
    batch.padding.emplace_back();
    const int64_t end = std::min(count, first + sequences_per_micro_batch);
    if (sequences[first].pairs) {
      batch.pair_bounds.emplace_back();
      batch.reference_logps.emplace_back();
    }
    for (int64_t i = first; i < end; ++i) {
      if (sequences[i].pairs) AppendPairs(sequences[i], batch.micro_batch_tokens.back(), batch);
      Append(sequences[i], batch);
    }
    EndMicroBatch(batch);
  }
  batch.step_micro_batches = static_cast<int>(std::ssize(batch.micro_batch_tokens));
  return batch;
}

Batch PartOfBatch(const Batch& batch, int rank, int ranks) {
  const int64_t count = std::ssize(batch.micro_batch_tokens);
  const int64_t first = count * rank / ranks, last = count * (rank + 1) / ranks;
  Batch part;
  part.step = batch.step;
  part.sequence_length = batch.sequence_length;
  part.predictions = batch.predictions;
  part.input_tokens = batch.input_tokens;
  part.pairs = batch.pairs;
  part.step_micro_batches = batch.step_micro_batches;
  const auto cut = [&]<typename T>(const std::vector<T>& of) {
    return of.empty() ? of : std::vector<T>(of.begin() + first, of.begin() + last);
  };
  part.micro_batch_tokens = cut(batch.micro_batch_tokens);
  part.document_starts = cut(batch.document_starts);
  part.padding = cut(batch.padding);
  part.pair_bounds = cut(batch.pair_bounds);
  part.reference_logps = cut(batch.reference_logps);
  const auto tokens = [&](int64_t micro_batch) {
    return std::accumulate(batch.micro_batch_tokens.begin(),
                           batch.micro_batch_tokens.begin() + micro_batch, int64_t{0});
  };
  for (auto array : {&Batch::ids, &Batch::positions, &Batch::targets, &Batch::sorted_positions}) {
    (part.*array)
        .assign((batch.*array).begin() + tokens(first), (batch.*array).begin() + tokens(last));
  }
  return part;
}

absl::Status CheckTokenIds(const Batch& batch, int64_t vocabulary) {
  const int64_t length = batch.sequence_length;
  const auto refuse = [&](int32_t id, int64_t token) {
    return absl::InvalidArgumentError(
        absl::StrCat("token ", id, " at position ", token % length, " of sequence ", token / length,
                     " is none of the model's, whose vocabulary has the ids 0 to ", vocabulary - 1,
                     "; use the tokenizer and the data that belong to this model"));
  };
  for (int64_t i = 0; i < std::ssize(batch.ids); ++i) {
    const int32_t id = batch.ids[i], target = batch.targets[i];
    if (id < 0 || id >= vocabulary) return refuse(id, i);
    // A target is the token behind.
    if (target >= vocabulary || (target < 0 && target != kMaskedLabel)) {
      return refuse(target, i + 1);
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
