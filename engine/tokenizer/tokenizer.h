// Text to token ids and back.
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

namespace megatrain {

// Thread safety: const methods may be called from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` (UTF-8), special tokens in the text recognised as `tokenizers` does,
  // nothing added around it (add_special_tokens=False). Invalid UTF-8: an error that names the byte
  // offset.
  virtual absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // As Encode, for the rest of a text that was cut: where the tokenizer puts a space before a text,
  // it puts none here.
  virtual absl::Status EncodeContinued(std::string_view text, std::vector<int32_t>* ids) const {
    return Encode(text, ids);
  }
  // True if a text that is cut behind a single line feed between ASCII letters has the tokens of
  // its pieces, the first by Encode and the others by EncodeContinued.
  virtual bool cuts_at_line_feeds() const { return true; }
  // As Encode, and appends for each id the offset in `text` of its first byte. Tokens follow each
  // other: an id's text ends where the next one's begins. Where a normalizer joined characters, the
  // offset is that of the first of them. A token of a byte alone, of a character that is no token,
  // has the offset of the character; a space put before a text, that of the text.
  virtual absl::Status EncodeWithOffsets(std::string_view text, std::vector<int32_t>* ids,
                                         std::vector<size_t>* offsets) const {
    return absl::UnimplementedError("this tokenizer gives no offsets");
  }
  // The bytes of the ids; special tokens are left out if `skip_special`. May end inside a UTF-8
  // character.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  // The id of a token given by its text ("<|im_end|>"), or nothing.
  virtual std::optional<int32_t> TokenId(std::string_view token) const = 0;
  // Ids are below this.
  virtual int64_t vocabulary() const = 0;
  // The end-of-text token that closes a document: tokenizer_config's eos_token; -1 if it names
  // none.
  virtual int32_t eos_id() const = 0;
  virtual int32_t bos_id() const = 0;  // -1 if none
  virtual int32_t pad_id() const = 0;  // -1 if none
  // XXH3-128 in hex over everything that decides the ids: keys the cache of tokenised data.
  virtual std::string fingerprint() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_H_
