// The interface of tokenizers: text to token ids and back. OpenTokenizer (open_tokenizer.h) makes
// one.
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

  // Appends the ids of `text` (UTF-8) to `ids`. Special tokens in the text are recognised as by
  // `tokenizers`; none are added around it (add_special_tokens=False). Returns InvalidArgument,
  // with the byte offset, for invalid UTF-8.
  virtual absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // Does as Encode for a later piece of a text that was cut. A tokenizer that puts a space before a
  // text does not put one here.
  virtual absl::Status EncodeContinued(std::string_view text, std::vector<int32_t>* ids) const {
    return Encode(text, ids);
  }
  // Returns true if a text may be cut behind a single line feed between ASCII letters without
  // changing its tokens. The first piece is then encoded by Encode and the others by
  // EncodeContinued.
  virtual bool cuts_at_line_feeds() const { return true; }
  // Does as Encode, and appends to `offsets` for each id the offset in `text` of its first byte. An
  // id's text ends where the next one's begins. If a normalizer joined characters, the offset is
  // that of the first of them. Tokens of single bytes have the offset of their character. A space
  // put before the text has the offset of the text. Returns Unimplemented if the tokenizer gives no
  // offsets.
  virtual absl::Status EncodeWithOffsets(std::string_view text, std::vector<int32_t>* ids,
                                         std::vector<size_t>* offsets) const {
    return absl::UnimplementedError("this tokenizer gives no offsets");
  }
  // Returns the bytes of the ids, which may end within a UTF-8 character. Special tokens are left
  // out if `skip_special`, and unknown ids always.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  // Returns the id of a token given by its text ("<|im_end|>"), or nullopt if there is none.
  virtual std::optional<int32_t> TokenId(std::string_view token) const = 0;
  // Returns a number that is greater than every id.
  virtual int64_t vocabulary() const = 0;
  // Returns the end-of-text token that ends a document, or -1 if there is none.
  virtual int32_t eos_id() const = 0;
  virtual int32_t bos_id() const = 0;  // -1 if there is none
  virtual int32_t pad_id() const = 0;  // -1 if there is none
  // Returns a text that differs between tokenizers that give different ids. It is part of the key
  // of cached data.
  virtual std::string fingerprint() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_H_
