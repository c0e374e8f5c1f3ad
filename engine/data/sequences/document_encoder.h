// Tokenises examples into the words of a token stream, whose format packing.h describes.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/chat/chat_template.h"
#include "engine/data/sequences/example.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// The size of the pieces in which longer texts are tokenised, so that memory does not grow with the
// text, and several threads can work on one.
inline constexpr size_t kTextPieceBytes = size_t{1} << 20;

// Returns the last place at which `text` can be cut without changing its tokens, or 0 if there is
// none. Such a place is behind a single line feed between two ASCII letters. The pre-tokenizers of
// the byte-level BPE families end a match there, and normalisation changes nothing around it.
// REQUIRES: Tokenizer::cuts_at_line_feeds is true for the tokenizer.
size_t LastSafeCut(std::string_view text);

// Returns the ids that go around a text: those of the tokenizer's post-processor, with the
// beginning-of-text token put first or left out as `add_bos` says. Returns InvalidArgument if it is
// to be put and the tokenizer has none.
absl::StatusOr<SpecialIds> IdsAroundText(const Tokenizer& tokenizer, AddBos add_bos);

struct DocumentEncoderOptions {
  const Tokenizer* tokenizer = nullptr;         // not owned
  const ChatTemplate* chat_template = nullptr;  // not owned; null if no example is a chat
  int32_t eos_id = -1;                          // ends a text document
  SpecialIds around;                            // what goes around a text document
  bool around_chats = false;                    // `around.before` goes before chats too
  bool train_on_prompt = false;                 // true: the loss is on all tokens of chats
  int64_t vocabulary = 0;                       // an id at or above it is an error
  size_t text_piece_bytes = kTextPieceBytes;
};

// Error messages describe the defect. They do not name the file; callers add it. Not thread-safe,
// because the encoder keeps buffers.
class DocumentEncoder {
 public:
  // The objects that `options` points to must outlive the encoder.
  explicit DocumentEncoder(const DocumentEncoderOptions& options) : options_(options) {}

  // Appends the example's words. Returns InvalidArgument if the chat template refuses the example,
  // and OutOfRange if a token id is not below the vocabulary. REQUIRES: `chat_template` was given
  // if the example is a chat.
  absl::Status Encode(const Example& example, std::vector<uint32_t>* words);

  // Appends the words of one piece of a text document. Call it for each piece, with `first` for the
  // first one, then call EndText. Each piece but the last must end at a SafeCut. Returns
  // InvalidArgument for invalid UTF-8, and OutOfRange for an id that is not below the vocabulary.
  absl::Status TextPiece(std::string_view text, bool first, std::vector<uint32_t>* words);
  // Does as TextPiece for the beginning of `text`, as far as what may follow cannot change its
  // tokens, and returns its length in bytes; 0 if nothing is settled. If `last`, nothing follows
  // and all is encoded. Begin with a new `state`, and go on with the rest and more text. For
  // tokenizers without SafeCuts.
  absl::StatusOr<size_t> SettledPiece(std::string_view text, bool first, bool last,
                                      PieceState* state, std::vector<uint32_t>* words);
  // Appends the ids that go behind a text and the end-of-text token, unless it is the last of them.
  // `first` says that TextPiece was not called for the document.
  void EndText(bool first, std::vector<uint32_t>* words) const;

  bool has_safe_cuts() const { return options_.tokenizer->cuts_at_line_feeds(); }
  // Returns the last place at which `text` can be cut for this tokenizer, or 0 if there is none.
  size_t SafeCut(std::string_view text) const {
    return options_.tokenizer->cuts_at_line_feeds() ? LastSafeCut(text) : 0;
  }

  // Returns the largest id encoded since ForgetLargestId, or -1 if there is none.
  int64_t largest_id() const { return largest_id_; }
  void ForgetLargestId() { largest_id_ = -1; }

 private:
  absl::Status CheckIds();
  // Appends the ids of a piece.
  void AppendText(bool first, std::vector<uint32_t>* words) const;
  // Appends `around.before` if there is one; `bits` belong to the first word, `target` to all.
  // Returns true if it appended anything.
  bool BeginWith(uint32_t bits, uint32_t target, std::vector<uint32_t>* words) const;

  const DocumentEncoderOptions options_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> target_;
  int64_t largest_id_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_
