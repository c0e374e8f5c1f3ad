// Parses Hugging Face's tokenizer.json.
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

// The largest file that is accepted. The largest known one (256,000 tokens) has 35 MB.
inline constexpr size_t kTokenizerJsonBytesMax = size_t{256} << 20;
// The limit below which all ids must be. No known vocabulary has a tenth as many.
inline constexpr int64_t kTokenIdMax = int64_t{1} << 24;

// The content of a tokenizer.json that has a byte-level BPE or a BPE of characters.
struct TokenizerJson {
  TextMap<int32_t> vocabulary;  // tokens as in the file; byte-level ones per byte_unicode.h
  BpeMerges merges;
  bool ignore_merges = false;  // a word that is a token is not merged
  std::optional<int32_t> unknown_id;
  bool fuse_unknown = false;
  bool nfc = false;
  PreTokenizer pre_tokenizer;

  // True for a BPE of characters (as in SentencePiece and Llama 2): spaces are marked, and a
  // character that is not a token becomes tokens of its bytes. The fields up to strip_spaces are
  // used by this kind only.
  bool byte_fallback = false;
  BpeSeams seams;
  bool prepend_mark = false;            // normalizer Prepend, for text between added tokens
  bool replace_spaces = false;          // normalizer Replace
  std::optional<MarkScheme> metaspace;  // pre_tokenizer Metaspace; excludes the two above
  size_t strip_spaces = 0;              // decoder Strip: spaces removed from the beginning

  std::vector<AddedToken> added_tokens;  // in file order; ids as in the file, not checked here
};

// Returns InvalidArgument, naming the part, for broken JSON or a missing or contradictory part.
// Returns Unimplemented, naming the component or setting and what works instead, if it is not
// supported.
absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_
