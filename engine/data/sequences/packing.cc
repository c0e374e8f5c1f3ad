#include "engine/data/sequences/packing.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace megatrain {

SequencePacker::SequencePacker(const PackingOptions& options, BeginCallback begin)
    : options_(options), begin_(std::move(begin)) {}

absl::Status SequencePacker::Append(absl::Span<const uint32_t> words) {
  for (const uint32_t word : words) {
    if ((word & kDocumentBit) != 0) {
      MT_RETURN_IF_ERROR(EndDocument());
      document_begin_ = position_;
      document_whole_ = (word & kWholeBit) != 0;
      document_has_target_ = false;
    } else if ((word & kTargetBit) != 0 &&
               position_ - document_begin_ < options_.kept_tokens_max()) {
      // The first token is not predicted, and what truncation cuts off is not trained on.
      document_has_target_ = true;
    }
    ++position_;
  }
  return absl::OkStatus();
}

absl::Status SequencePacker::Finish() {
  MT_RETURN_IF_ERROR(EndDocument());
  Drop();
  if (chosen_.begin < 0) return absl::OkStatus();
  return absl::InternalError("a stream of pairs ends with half a pair");
}

absl::Status SequencePacker::Begin(int64_t word) {
  Drop();
  filled_ = 0;
  begun_ = word;
  return absl::OkStatus();
}

void SequencePacker::Drop() {
  if (begun_ >= 0) ++counts_.examples_without_target;
  begun_ = -1;
  undecided_ = 0;
}

absl::Status SequencePacker::Take(int64_t tokens) {
  filled_ += tokens;
  undecided_ += tokens;
  if (begun_ >= 0) {
    if (tokens < 2) return absl::OkStatus();  // a document's first token is not predicted
    ++counts_.sequences;
    MT_RETURN_IF_ERROR(begin_(static_cast<uint64_t>(std::exchange(begun_, -1))));
  }
  counts_.tokens += std::exchange(undecided_, 0);
  return absl::OkStatus();
}

absl::Status SequencePacker::EndWhole(int64_t begin, int64_t kept, bool truncated,
                                      bool has_target) {
  if (!options_.packing) filled_ = -1;
  if (truncated) ++counts_.truncated_examples;
  if (!has_target) {
    ++counts_.examples_without_target;
    return absl::OkStatus();
  }
  if (filled_ < 0 || filled_ + kept > options_.sequence_length) MT_RETURN_IF_ERROR(Begin(begin));
  return Take(kept);
}

absl::Status SequencePacker::EndDocument() {
  if (document_begin_ < 0) return absl::OkStatus();
  const int64_t begin = document_begin_;
  const int64_t length = position_ - begin;
  const int64_t capacity = options_.sequence_length;
  document_begin_ = -1;

  const int64_t kept = std::min(length, options_.kept_tokens_max());
  if (options_.pairs) {
    const Half half = {begin, kept, kept < length, document_has_target_};
    if (chosen_.begin < 0) {
      chosen_ = half;
      return absl::OkStatus();
    }
    const Half chosen = std::exchange(chosen_, {});
    return EndWhole(chosen.begin, chosen.kept + half.kept, chosen.truncated || half.truncated,
                    chosen.has_target && half.has_target);
  }
  if (document_whole_) return EndWhole(begin, kept, kept < length, document_has_target_);

  if (!options_.packing) filled_ = -1;

  for (int64_t done = 0; done < length;) {
    if (filled_ < 0 || filled_ == capacity) MT_RETURN_IF_ERROR(Begin(begin + done));
    const int64_t take = std::min(length - done, capacity - filled_);
    MT_RETURN_IF_ERROR(Take(take));
    done += take;
  }
  return absl::OkStatus();
}

namespace {

// Words of a stream from `begin` on, read as far as they are asked for.
class WordWindow {
 public:
  WordWindow(WordReader read, int64_t begin, int64_t end, int64_t step)
      : read_(read), begin_(begin), size_(end - begin), step_(step) {}

  int64_t size() const { return size_; }
  // REQUIRES: i < size(), and Load(i + 1) was called.
  uint32_t operator[](int64_t i) const { return words_[static_cast<size_t>(i)]; }

  // Makes words [0, min(count, size())) readable.
  absl::Status Load(int64_t count) {
    const int64_t have = static_cast<int64_t>(words_.size());
    if (have >= std::min(count, size_)) return absl::OkStatus();
    const int64_t want = std::min(size_, std::max(count, have + step_));
    words_.resize(static_cast<size_t>(want));
    return read_(begin_ + have, want - have, words_.data() + have);
  }

  // The end of the document that word `i` belongs to, or `limit` if it goes on there.
  absl::StatusOr<int64_t> DocumentEnd(int64_t i, int64_t limit) {
    limit = std::min(limit, size_);
    for (int64_t at = i + 1; at < limit; ++at) {
      MT_RETURN_IF_ERROR(Load(at + 1));
      if (((*this)[at] & kDocumentBit) != 0) return at;
    }
    return limit;
  }

 private:
  const WordReader read_;
  const int64_t begin_;
  const int64_t size_;
  const int64_t step_;
  std::vector<uint32_t> words_;
};

// The two documents of a pair.
struct Pair {
  int64_t begin[2] = {0, 0}, end[2] = {0, 0};  // in words, without what is cut off
  int64_t next = 0;                            // the word where the next pair begins
  bool has_target = true;                      // both have a prediction
};

absl::StatusOr<Pair> NextPair(const PackingOptions& options, WordWindow& words, int64_t at) {
  Pair pair;
  pair.next = at;
  for (int part = 0; part < 2; ++part) {
    const int64_t begin = pair.next;
    MT_RETURN_IF_ERROR(words.Load(begin + 1));
    if (begin >= words.size()) return absl::InternalError("half a pair in the stream of tokens");
    MT_ASSIGN_OR_RETURN(const int64_t end,
                        words.DocumentEnd(begin, begin + options.kept_tokens_max()));
    MT_RETURN_IF_ERROR(words.Load(end));
    bool has_target = false;
    for (int64_t i = begin + 1; i < end; ++i) has_target |= (words[i] & kTargetBit) != 0;
    pair.has_target &= has_target;
    pair.begin[part] = begin;
    pair.end[part] = end;
    MT_ASSIGN_OR_RETURN(pair.next, words.DocumentEnd(end - 1, words.size()));
  }
  return pair;
}

// Fills a sequence of pairs, which begins at word 0 of `words`.
absl::Status FillPairs(const PackingOptions& options, WordWindow& words, Sequence* sequence) {
  sequence->pairs = true;
  int64_t filled = 0;
  int32_t document = 0;
  for (int64_t at = 0; at < words.size();) {
    MT_ASSIGN_OR_RETURN(const Pair pair, NextPair(options, words, at));
    at = pair.next;
    if (!pair.has_target) continue;
    const int64_t tokens = pair.end[0] - pair.begin[0] + pair.end[1] - pair.begin[1];
    if (tokens > options.sequence_length - filled) {
      return absl::InternalError("the index of sequences does not fit the stream of tokens");
    }
    for (int part = 0; part < 2; ++part, ++document) {
      for (int64_t i = pair.begin[part]; i < pair.end[part]; ++i, ++filled) {
        const size_t to = static_cast<size_t>(filled);
        const int32_t id = static_cast<int32_t>(words[i] & kTokenMask);
        const bool target = (words[i] & kTargetBit) != 0 && i > pair.begin[part];
        sequence->input_ids[to] = id;
        sequence->labels[to] = target ? id : kMaskedLabel;
        sequence->position_ids[to] = static_cast<int32_t>(i - pair.begin[part]);
        sequence->document_ids[to] = document;
      }
    }
    if (!options.packing) break;
  }
  std::iota(sequence->position_ids.begin() + filled, sequence->position_ids.end(), 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status FillPackedSequence(const PackingOptions& options, WordReader read, int64_t begin,
                                int64_t end, int32_t pad_id, Sequence* sequence) {
  const int64_t capacity = options.sequence_length;
  const size_t size = static_cast<size_t>(capacity);
  sequence->input_ids.assign(size, pad_id);
  sequence->labels.assign(size, kMaskedLabel);
  sequence->position_ids.assign(size, 0);
  sequence->document_ids.assign(size, -1);

  WordWindow words(read, begin, end, capacity);
  if (options.pairs) return FillPairs(options, words, sequence);
  int64_t filled = 0;
  int32_t document = 0;
  int64_t at = 0;  // in words
  while (at < words.size() && filled < capacity) {
    MT_RETURN_IF_ERROR(words.Load(at + 1));
    const bool whole = (words[at] & (kDocumentBit | kWholeBit)) == (kDocumentBit | kWholeBit);
    MT_ASSIGN_OR_RETURN(int64_t piece_end,
                        words.DocumentEnd(at, at + (whole ? capacity : capacity - filled)));
    MT_RETURN_IF_ERROR(words.Load(piece_end));
    if (whole) {
      bool has_target = false;
      for (int64_t i = at + 1; i < piece_end; ++i) has_target |= (words[i] & kTargetBit) != 0;
      if (!has_target) {
        MT_ASSIGN_OR_RETURN(at, words.DocumentEnd(at, words.size()));
        continue;
      }
      if (piece_end - at > capacity - filled) {
        return absl::InternalError("the index of sequences does not fit the stream of tokens");
      }
    }
    for (int64_t i = at; i < piece_end; ++i, ++filled) {
      const size_t to = static_cast<size_t>(filled);
      const int32_t id = static_cast<int32_t>(words[i] & kTokenMask);
      const bool unpredicted = i == at && document > 0;
      sequence->input_ids[to] = id;
      sequence->labels[to] = (words[i] & kTargetBit) != 0 && !unpredicted ? id : kMaskedLabel;
      sequence->position_ids[to] = static_cast<int32_t>(i - at);
      sequence->document_ids[to] = document;
    }
    ++document;
    at = piece_end;
    if (!options.packing) break;
  }
  std::iota(sequence->position_ids.begin() + filled, sequence->position_ids.end(), 0);
  return absl::OkStatus();
}

Sequence WholeSequence(std::vector<int32_t> ids) {
  Sequence sequence;
  sequence.position_ids.resize(ids.size());
  std::iota(sequence.position_ids.begin(), sequence.position_ids.end(), 0);
  sequence.document_ids.assign(ids.size(), 0);
  sequence.labels = ids;
  sequence.input_ids = std::move(ids);
  return sequence;
}

}  // namespace megatrain
