// Tokenizer is the interface of tokenizers, which turn text into token ids and back. OpenTokenizer
// (open_tokenizer.h) makes one.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/model/word_state.h"

namespace megatrain {

// The ids that go before and after one text if special tokens are added.
struct SpecialIds {
  std::vector<int32_t> before, after;
};

// The state of encoding a long text piece by piece, kept from one piece to the next. A new one
// begins a text.
struct PieceState {
  bool continued = false;  // a piece was encoded before
  WordState word;          // of the word that the text goes on with

  bool operator==(const PieceState&) const = default;
};

// Thread safety: const methods may be called from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` (UTF-8) to `ids`. Special tokens in the text are recognised as by
  // `tokenizers` (Hugging Face's library). None are added around it (add_special_tokens=False).
  // Returns InvalidArgument for invalid UTF-8, with the byte offset, and for a text that is too
  // long or has a part without tokens. Returns ResourceExhausted if a regular expression gives up,
  // and Internal if Unicode normalization fails. After an error `ids` may have ids of a part of the
  // text.
  virtual absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // Encodes a beginning of `text` whose tokens no text that may follow can change, appends the ids,
  // and returns the number of bytes encoded. The beginning need not be the longest one. These
  // tokens, and those of later calls with the same `state` and the rest of the text, are those that
  // Encode gives for the whole. For example, "Hello wor" may give the tokens of "Hello" and return
  // 5; the next call is then for " wor" and more. Returns 0, with `*state` unchanged, if no
  // beginning is known: call again with more text. If `last`, nothing follows and all of `text` is
  // encoded; `*state` must not be used afterwards. Unless `last`, `text` may end within a
  // character. Returns the errors of Encode, with `*state` unchanged.
  virtual absl::StatusOr<size_t> EncodePiece(std::string_view text, bool last, PieceState* state,
                                             std::vector<int32_t>* ids) const = 0;
  // Does as Encode, and appends to `offsets` for each id the offset in `text` of its first byte. An
  // id's text ends where the next one's begins. Returns Unimplemented if the tokenizer gives no
  // offsets. An id whose bytes are not in the text itself has this offset:
  // - of characters that a normalizer joined: the first of them
  // - of a text that a normalizer replaced by another (Replace): its last character
  // - of byte fallback ("<0x0A>"): its character, or with Unigram its run of unknown characters
  // - of a space or mark that was put before a text: where that text begins
  virtual absl::Status EncodeWithOffsets(std::string_view text, std::vector<int32_t>* ids,
                                         std::vector<size_t>* offsets) const {
    return absl::UnimplementedError("this tokenizer gives no offsets");
  }
  // Returns the text of the ids, which may end within a UTF-8 character. Special tokens are left
  // out if `skip_special`, and ids without a token always.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  // Returns the id of the token that the vocabulary writes as `token` ("<|im_end|>"), or nullopt if
  // there is none.
  virtual std::optional<int32_t> TokenId(std::string_view token) const = 0;
  // Returns the token as the vocabulary writes it: the inverse of TokenId. It may differ from what
  // Decode gives: a byte-level vocabulary writes a space as U+0120. It is UTF-8, but for a token
  // that is a single byte. Returns "" if no token has the id.
  virtual std::string TokenText(int32_t id) const = 0;
  // Returns a number that is greater than every id.
  virtual int64_t vocabulary() const = 0;
  // Returns the end-of-text token that ends a document, or -1 if there is none.
  virtual int32_t eos_id() const = 0;
  // Returns the tokens at which generated text ends: the eos_token_id of generation_config.json or
  // config.json, which may be several, as far as they are below vocabulary(), and eos_id(). No id
  // is there twice.
  virtual std::vector<int32_t> end_ids() const {
    return eos_id() < 0 ? std::vector<int32_t>() : std::vector<int32_t>{eos_id()};
  }
  // Returns the ids that `transformers` puts around one text with add_special_tokens=True.
  virtual SpecialIds special_tokens_around() const { return {}; }
  virtual int32_t bos_id() const = 0;  // -1 if there is none
  virtual int32_t pad_id() const = 0;  // -1 if there is none
  // Returns a text that differs between tokenizers that give different ids. It is part of the key
  // of cached data.
  virtual std::string fingerprint() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_H_
