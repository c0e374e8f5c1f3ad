// How documents become sequences: next-fit in file order.
//
// A stream of prepared data is one uint32 word a token: the id, and what packing has to know of it.
// A sequence is then fully said by the word it begins at; the next one's beginning is its end.
//   packed    text fills the open sequence and goes on in the next one; a chat example that does
//             not fit into what is left opens a new sequence
//   unpacked  every document opens a sequence; text goes on in further ones
//   always    a chat example longer than a sequence keeps its first sequence_length tokens; one
//             with no prediction left to learn from is passed over; text is always kept whole
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_PACKING_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_PACKING_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/data/sequences/sequence.h"

namespace megatrain {

inline constexpr uint32_t kTargetBit = uint32_t{1} << 31;    // the loss is on this token
inline constexpr uint32_t kDocumentBit = uint32_t{1} << 30;  // a document begins here
inline constexpr uint32_t kWholeBit = uint32_t{1} << 29;     // and is never split (chat)
inline constexpr uint32_t kTokenMask = kWholeBit - 1;

struct PackingOptions {
  int64_t sequence_length = 0;  // >= 2
  bool packing = true;
};

struct PackingCounts {
  int64_t sequences = 0;
  int64_t tokens = 0;  // in sequences, without padding
  int64_t truncated_examples = 0;
  int64_t examples_without_target = 0;
};

// Finds where sequences begin. Feed the stream in order, in pieces of any size.
class SequencePacker {
 public:
  // `begin(word)` is called for each sequence, in order.
  using BeginCallback = std::function<absl::Status(uint64_t word)>;
  SequencePacker(const PackingOptions& options, BeginCallback begin);

  absl::Status Append(absl::Span<const uint32_t> words);
  absl::Status Finish();
  const PackingCounts& counts() const { return counts_; }

 private:
  absl::Status EndDocument();
  absl::Status Begin(int64_t word);

  const PackingOptions options_;
  const BeginCallback begin_;
  PackingCounts counts_;
  int64_t position_ = 0;  // words seen
  // The document that is being read.
  int64_t document_begin_ = -1;
  bool document_whole_ = false;
  bool document_has_target_ = false;
  // Tokens in the open sequence; -1 before the first one.
  int64_t filled_ = -1;
};

// Reads words [first, first + count) of a stream.
using WordReader = absl::FunctionRef<absl::Status(int64_t first, int64_t count, uint32_t* words)>;

// The sequence that begins at word `begin`; `end` is where the next one begins, or the stream's
// end. Rest padded with `pad_id`. Labels of a document's first token are masked where another
// document is before it: nothing predicts it.
absl::Status FillPackedSequence(const PackingOptions& options, WordReader read, int64_t begin,
                                int64_t end, int32_t pad_id, Sequence* sequence);

// A sequence that is `ids` and nothing else: one document, every token a label.
Sequence WholeSequence(std::vector<int32_t> ids);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_PACKING_H_
