// Parses Hugging Face's tokenizer.json.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/decoder.h"
#include "engine/tokenizer/model/token_model.h"
#include "engine/tokenizer/normalizer/normalizer.h"
#include "engine/tokenizer/split/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// The largest file that is accepted. The largest known one (256,000 tokens) has 35 MB.
inline constexpr size_t kTokenizerJsonBytesMax = size_t{256} << 20;
// All ids in the file must be below this. No known vocabulary has a tenth as many.
inline constexpr int64_t kTokenIdMax = int64_t{1} << 24;

// The parts of a tokenizer, as tokenizer.json has them. ParseSentencePieceModel makes them too.
struct TokenizerJson {
  std::unique_ptr<TokenModel> model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  SpecialIds special_ids;  // of the post_processor
  // The tokens of "added_tokens", in the order of the file and with its ids. TokenTable
  // (token_table.h) checks the ids.
  std::vector<AddedToken> added_tokens;
};

// Parses `text`, the content of a file, which is used during the call only. Returns InvalidArgument
// if it is longer than kTokenizerJsonBytesMax, is not UTF-8 or is not JSON. Returns InvalidArgument
// also for a part that is missing, malformed or contradicts another; the message names the part,
// the key or the regular expression. Returns Unimplemented for a component, a setting or a regular
// expression that is not supported, and ResourceExhausted if memory for a regular expression is
// missing. Messages do not name the file.
absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_
