// Reads Hugging Face's tokenizer.json.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_merge.h"
#include "engine/tokenizer/bpe_seams.h"
#include "engine/tokenizer/text/pre_tokenizer.h"
#include "engine/tokenizer/text/space_mark.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {

// Files larger than this are refused: the largest known (256,000 tokens) have 35 MB.
inline constexpr size_t kTokenizerJsonBytesMax = size_t{256} << 20;
// Ids are below this: no known vocabulary has a tenth of it.
inline constexpr int64_t kTokenIdMax = int64_t{1} << 24;

// What a tokenizer.json says, either with a byte-level BPE or with one of characters.
struct TokenizerJson {
  TextMap<int32_t> vocabulary;  // tokens as written: byte-level ones with bytes as characters
  BpeMerges merges;
  bool ignore_merges = false;  // a word that is a token is not merged
  std::optional<int32_t> unknown_id;
  bool fuse_unknown = false;
  bool nfc = false;
  PreTokenizer pre_tokenizer;

  // A BPE of characters (SentencePiece's, as Llama 2 has it) instead of bytes: spaces are marked,
  // and a character that is no token becomes tokens of its bytes. The rest is for these only.
  bool byte_fallback = false;
  BpeSeams seams;
  bool prepend_mark = false;            // normalizer Prepend: before all text between added tokens
  bool replace_spaces = false;          // normalizer Replace
  std::optional<MarkScheme> metaspace;  // pre_tokenizer Metaspace; the two above are false then
  size_t strip_spaces = 0;              // decoder Strip: so many from the text's beginning

  std::vector<AddedToken> added_tokens;  // in file order; ids as in the file, not checked here
};

// InvalidArgument: broken JSON, a missing or contradicting part (named). Unimplemented: a component
// or setting that is not supported (named, with what works instead).
absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_
