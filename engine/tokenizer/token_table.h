// TokenTable numbers the tokens of a Hugging Face tokenizer: those of its model, those that its
// files add, and which of them are special.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKEN_TABLE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKEN_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/tokenizer_config.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace megatrain {

// Removes from `config` tokens that `parts` has already, so that they count neither for ids nor for
// a fingerprint: those of added_tokens.json if `parts` is of tokenizer.json (`is_json`), whose
// flags go before, and special ones of a model's own keys.
void RemoveKnownTokens(const TokenizerJson& parts, bool is_json, TokenizerConfig* config);

// Thread safety: const methods may be called from several threads.
class TokenTable {
 public:
  struct Decoded {
    std::string text;      // of an added token with AddedToken::normalized, the normalized one
    bool special = false;  // may be left out of decoded text
  };

  // Reads the tokens of `parts`, which is from `file`, and adds those of `config`. Flags of the
  // latter's added tokens replace those of `parts`. Call it once, before all others. `parts.model`
  // must outlive this object. Returns InvalidArgument if files give a token another id than
  // `tokenizers` (Hugging Face's library) does, surround texts with an id that no token has, or
  // have a token of more than 4096 bytes, normalized or not. Returns the errors of
  // Normalizer::Normalize.
  absl::Status Initialize(const TokenizerJson& parts, std::string_view file,
                          const TokenizerConfig& config);

  // Returns the id of the token, or nullopt if no token has this text.
  std::optional<int32_t> TokenId(std::string_view token) const;
  // Returns the token's text, valid as long as this object, or null if no token has the id.
  const Decoded* Find(int32_t id) const;
  // Returns the added tokens by their ids. What stands for one in a text is Find(id)->text.
  const std::map<int32_t, AddedToken>& added() const { return added_; }

  int64_t vocabulary() const { return vocabulary_; }  // the highest id plus one
  // -1 if there is none.
  int32_t bos_id() const { return bos_id_; }
  int32_t eos_id() const { return eos_id_; }
  int32_t pad_id() const { return pad_id_; }
  const std::vector<int32_t>& end_ids() const { return end_ids_; }  // ascending
  const SpecialIds& special_ids() const { return special_ids_; }    // around a text
  // True if `config` changed how a token of `parts` is found in a text.
  bool flags_replaced() const { return flags_replaced_; }

 private:
  absl::Status AddAgain(std::string_view file, const TokenizerConfig& config);
  absl::Status Add(const std::vector<AddedToken>& tokens, bool any_id, std::string_view file);
  absl::Status Tabulate(const Normalizer& normalizer);
  void SetSpecials(const TokenizerConfig& config);
  absl::Status CheckSpecialIds(std::string_view file) const;

  const TokenModel* model_ = nullptr;
  std::map<int32_t, AddedToken> added_;
  TextMap<int32_t> added_ids_;
  absl::flat_hash_map<int32_t, Decoded> decoded_;
  int64_t vocabulary_ = 0;
  int32_t bos_id_ = -1;
  int32_t eos_id_ = -1;
  int32_t pad_id_ = -1;
  std::vector<int32_t> end_ids_;
  SpecialIds special_ids_;
  bool flags_replaced_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKEN_TABLE_H_
