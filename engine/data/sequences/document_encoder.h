// Documents to words of the token stream (packing.h).
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/chat/chat_template.h"
#include "engine/data/sequences/example.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// A text longer than this is tokenised in pieces, so that memory does not grow with the document.
inline constexpr size_t kTextPieceBytes = size_t{16} << 20;

// The last place in `text` at which it may be cut so that the pieces' tokens are the whole's:
// behind a single line feed between two ASCII letters. The pre-tokenizers of byte-level BPE
// families end a match there (the line feed is a match of its own, whatever follows), and
// normalisation changes nothing at such a place; other tokenizers say whether it holds
// (cuts_at_line_feeds). 0 if there is none.
size_t LastSafeCut(std::string_view text);

struct DocumentEncoderOptions {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // may be null if no example is a chat
  int32_t eos_id = -1;
  bool train_on_prompt = false;
  int64_t vocabulary = 0;  // an id at or above it is an error
  size_t text_piece_bytes = kTextPieceBytes;
};

// Not thread-safe: it keeps buffers. Errors say what is wrong, not in which file.
class DocumentEncoder {
 public:
  explicit DocumentEncoder(const DocumentEncoderOptions& options) : options_(options) {}

  // Appends the example's words.
  absl::Status Encode(const Example& example, std::vector<uint32_t>* words);

  // A text document in pieces: TextPiece for each (the first one with `first`), then EndText. Each
  // piece but the last must end at a SafeCut.
  absl::Status TextPiece(std::string_view text, bool first, std::vector<uint32_t>* words);
  // Appends the end-of-text token; `first` if there was no token before it.
  void EndText(bool first, std::vector<uint32_t>* words) const;

  // The last place at which `text` may be cut for the tokenizer, 0 if there is none.
  size_t SafeCut(std::string_view text) const {
    return options_.tokenizer->cuts_at_line_feeds() ? LastSafeCut(text) : 0;
  }

  int64_t largest_id() const { return largest_id_; }

 private:
  absl::Status CheckIds();

  const DocumentEncoderOptions options_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> target_;
  int64_t largest_id_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_
