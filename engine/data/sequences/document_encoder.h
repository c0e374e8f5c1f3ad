// DocumentEncoder tokenizes examples into the words of a token stream, whose format packing.h
// describes.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/chat/chat_template.h"
#include "engine/data/sequences/example.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// The bytes of text that are tokenized at a time, so that memory does not grow with the text. The
// threads have equal parts of it, of at least kTextPieceBytesMin each.
inline constexpr size_t kTextPieceBytes = size_t{2} << 20;
inline constexpr size_t kTextPieceBytesMin = size_t{64} << 10;
// In some plain texts the tokens of a long stretch depend on what follows it (engine/data/README.md
// says in which). FileWordMaker holds such a stretch, and refuses the file if it holds this many
// bytes. Encoding takes up to some 50 bytes of memory for each byte that is held.
inline constexpr size_t kTextHeldBytesMax = size_t{4} << 20;

// Returns the ids that go around a text: those of the tokenizer's post-processor, with the
// beginning-of-text token put first or left out as `add_bos` says. Returns InvalidArgument if it is
// to be put and the tokenizer has none.
absl::StatusOr<SpecialIds> IdsAroundText(const Tokenizer& tokenizer, AddBos add_bos);

// The tokenizer and the template that encode documents, and the ids around a document.
struct DocumentEncoderOptions {
  const Tokenizer* tokenizer = nullptr;  // not owned
  // Not owned; null if there is none. A pair of conversations is then refused.
  const ChatTemplate* chat_template = nullptr;
  int32_t eos_id = -1;                        // ends a text document
  SpecialIds around;                          // what goes around a text document
  bool around_chats = false;                  // `around.before` goes before chats too
  int64_t vocabulary = 0;                     // an id at or above it is an error
  size_t text_piece_bytes = kTextPieceBytes;  // of each thread
};

// Error messages describe the defect. They do not name the file; callers add it. Not thread-safe,
// because the encoder keeps buffers.
class DocumentEncoder {
 public:
  // The objects that `options` points to must outlive the encoder.
  explicit DocumentEncoder(const DocumentEncoderOptions& options) : options_(options) {}

  // Appends the example's words. A pair becomes two documents, the chosen answer first. Returns the
  // errors of ChatTemplate::Render, and InvalidArgument if the template makes no token of the
  // example, or if `chat_template` or `eos_id` is missing for a pair. Returns OutOfRange if a token
  // id is not below the vocabulary. Returns the errors of the tokenizer. After an error some words
  // may have been appended. REQUIRES: `chat_template` was given if the example is a chat, and
  // `eos_id` if it is a text.
  absl::Status Encode(const Example& example, std::vector<uint32_t>* words);

  // Encodes a text document piece by piece. `text` is the beginning of what is left of it, and all
  // of that if `last`. Appends the words of as much as Tokenizer::EncodePiece can encode, and
  // returns the number of its bytes: 0 if more of the text is needed. Call EndText after the last
  // piece, or Restart if the text is given up. Returns the errors of Tokenizer::EncodePiece, and
  // OutOfRange for an id that is not below the vocabulary. The words do not depend on `pool`, which
  // may be null; do not call this within a loop of it.
  absl::StatusOr<size_t> TextPiece(std::string_view text, bool last, std::vector<uint32_t>* words,
                                   ThreadPool* pool = nullptr);
  // Ends a text document: appends the ids that go behind it, and the end-of-text token unless they
  // end with it. REQUIRES: `eos_id` was given.
  void EndText(std::vector<uint32_t>* words);

  // Returns the largest id since Restart, or -1 if there is none. Ids that the options put around a
  // document may be left out, because PrepareEncoder checks them.
  int64_t largest_id() const { return largest_id_; }
  // Returns the number of the assistant's turns since Restart that have no loss because their place
  // in the text is uncertain.
  int64_t turns_without_loss() const { return turns_without_loss_; }
  // Sets largest_id to -1 and turns_without_loss to 0, and forgets a text that was given up.
  void Restart();

 private:
  absl::Status CheckIds();
  absl::Status EncodeChat(const Conversation& conversation, std::vector<uint32_t>* words);
  // Encodes prompt and answer as one text; the loss is on the answer and the end-of-text token.
  absl::Status EncodeAnswer(const std::string& prompt, const std::string& answer,
                            std::vector<uint32_t>* words);
  // Appends `around.before` if there is one; `bits` belong to the first word, `target` to all.
  // Returns true if it appended anything.
  bool BeginWith(uint32_t bits, uint32_t target, std::vector<uint32_t>* words) const;
  // Appends `ids_` as the next words of the text, after what goes before the first of them.
  void AppendText(std::vector<uint32_t>* words);
  // Appends `ids_` with `target_` as a document that must not be split. `begun` says that it has a
  // word already.
  void AppendWhole(bool begun, std::vector<uint32_t>* words) const;
  void ForgetText();

  const DocumentEncoderOptions options_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> target_;
  PieceState piece_;    // of the text document that is being encoded
  bool begun_ = false;  // it has a token
  int64_t largest_id_ = -1;
  int64_t turns_without_loss_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_ENCODER_H_
