// Packs documents into training sequences, next-fit in file order: a document goes into the open
// sequence or begins the next one, and earlier ones are never filled up.
//
// A stream of prepared data has one uint32 word for each token: its id and the bits below. Words
// are numbered from 0. A sequence is identified by the number of the word at which it begins. It
// ends where the next one begins.
//
// A text fills the open sequence and continues in further ones. A chat example is not split: if it
// does not fit into the rest of the open sequence, it begins a new one. If it is longer than a
// sequence, it keeps its first sequence_length tokens. If it has no prediction to learn from, it is
// left out. So is a sequence of texts without a prediction: every document in it is one token.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_PACKING_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_PACKING_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/data/sequences/sequence.h"

namespace megatrain {

inline constexpr uint32_t kTargetBit = uint32_t{1} << 31;    // the loss is computed on this token
inline constexpr uint32_t kDocumentBit = uint32_t{1} << 30;  // a document begins here
inline constexpr uint32_t kWholeBit = uint32_t{1} << 29;  // it must not be split (a chat example)
inline constexpr uint32_t kTokenMask = kWholeBit - 1;     // the id

struct PackingOptions {
  int64_t sequence_length = 0;  // in tokens, >= 2
  bool packing = true;          // false: every document, or pair, begins a sequence
  // True if every two documents are a chosen and a rejected answer. Each keeps its first
  // sequence_length / 2 tokens, so that a pair always fits. A pair is packed as one chat example,
  // and left out if either answer has no prediction left.
  bool pairs = false;

  // Returns the tokens that a document which must not be split keeps.
  int64_t kept_tokens_max() const { return pairs ? sequence_length / 2 : sequence_length; }
};

struct PackingCounts {
  int64_t sequences = 0;
  int64_t tokens = 0;              // in sequences, without padding
  int64_t truncated_examples = 0;  // chat examples longer than a sequence, or pairs cut short
  // Chat examples, pairs and sequences of texts that were left out, for they have no prediction.
  int64_t examples_without_target = 0;
};

// Finds the words at which sequences begin. Append takes the stream in order, in pieces of any
// size, and Finish ends it. Both return the error of the callback, after which no call may follow.
// Finish also returns Internal if the last pair lacks an answer. Not thread-safe. REQUIRES: the
// first word of the stream begins a document.
class SequencePacker {
 public:
  // Called with the number of the first word of each sequence, in order.
  using BeginCallback = std::function<absl::Status(uint64_t word)>;
  // `begin` must not be null.
  SequencePacker(const PackingOptions& options, BeginCallback begin);

  absl::Status Append(absl::Span<const uint32_t> words);
  absl::Status Finish();
  // Returns the counts, which are complete after Finish.
  const PackingCounts& counts() const { return counts_; }

 private:
  absl::Status EndDocument();
  absl::Status EndWhole(int64_t begin, int64_t kept, bool truncated, bool has_target);
  // Opens a sequence. It is told of once it has a prediction.
  absl::Status Begin(int64_t word);
  // Puts tokens of one document, or a pair, into the open sequence.
  absl::Status Take(int64_t tokens);
  // Leaves out the open sequence if it has no prediction.
  void Drop();

  const PackingOptions options_;
  const BeginCallback begin_;
  PackingCounts counts_;
  int64_t position_ = 0;  // the number of words seen
  // The document that is being read; -1 if there is none.
  int64_t document_begin_ = -1;
  bool document_whole_ = false;
  bool document_has_target_ = false;
  // The chosen answer whose rejected one is still to come.
  struct Half {
    int64_t begin = -1, kept = 0;
    bool truncated = false, has_target = false;
  } chosen_;
  // Tokens in the open sequence; -1 before the first one.
  int64_t filled_ = -1;
  // The number of the open sequence's first word, or -1, and its tokens, or 0, as long as it has no
  // prediction.
  int64_t begun_ = -1, undecided_ = 0;
};

// Reads words [first, first + count) of a stream into `words`.
using WordReader = absl::FunctionRef<absl::Status(int64_t first, int64_t count, uint32_t* words)>;

// Makes the sequence that begins at word number `begin`. `end` is the number of the word where the
// next sequence begins, or that of words in the stream. The rest of the sequence is padded with
// `pad_id`. The label of a document's first token is masked, because nothing predicts it. The first
// label of a sequence without pairs may stay, but no prediction uses it. Leaves reference_logps as
// it is. Returns the error of `read`, or Internal if `begin` does not fit the stream. REQUIRES:
// `*sequence` is new.
absl::Status FillPackedSequence(const PackingOptions& options, WordReader read, int64_t begin,
                                int64_t end, int32_t pad_id, Sequence* sequence);

// Makes a sequence of `ids` alone, without padding: one document in which every token is a label.
Sequence WholeSequence(std::vector<int32_t> ids);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_PACKING_H_
