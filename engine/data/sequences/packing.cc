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
    } else if ((word & kTargetBit) != 0 && position_ - document_begin_ < options_.sequence_length) {
      // The first token is not predicted, and what truncation cuts off is not trained on.
      document_has_target_ = true;
    }
    ++position_;
  }
  return absl::OkStatus();
}

absl::Status SequencePacker::Finish() { return EndDocument(); }

absl::Status SequencePacker::Begin(int64_t word) {
  filled_ = 0;
  ++counts_.sequences;
  return begin_(static_cast<uint64_t>(word));
}

absl::Status SequencePacker::EndDocument() {
  if (document_begin_ < 0) return absl::OkStatus();
  const int64_t begin = document_begin_;
  const int64_t length = position_ - begin;
  const int64_t capacity = options_.sequence_length;
  document_begin_ = -1;
  if (!options_.packing) filled_ = -1;

  if (document_whole_) {
    const int64_t kept = std::min(length, capacity);
    if (kept < length) ++counts_.truncated_examples;
    if (!document_has_target_) {
      ++counts_.examples_without_target;
      return absl::OkStatus();
    }
    if (filled_ < 0 || filled_ + kept > capacity) MT_RETURN_IF_ERROR(Begin(begin));
    filled_ += kept;
    counts_.tokens += kept;
    return absl::OkStatus();
  }

  for (int64_t done = 0; done < length;) {
    if (filled_ < 0 || filled_ == capacity) MT_RETURN_IF_ERROR(Begin(begin + done));
    const int64_t take = std::min(length - done, capacity - filled_);
    filled_ += take;
    done += take;
  }
  counts_.tokens += length;
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
