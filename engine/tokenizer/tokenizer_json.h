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
// All ids must be below this. No known vocabulary has a tenth as many.
inline constexpr int64_t kTokenIdMax = int64_t{1} << 24;

// The parts of a tokenizer, as tokenizer.json has them.
struct TokenizerJson {
  std::unique_ptr<TokenModel> model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  SpecialIds special_ids;                // of the post_processor
  std::vector<AddedToken> added_tokens;  // in file order; ids of the file, which TokenTable checks
};

// Parses a file's content, which is used during the call only. Returns InvalidArgument, naming the
// part, for broken JSON or a missing or contradictory part. Returns Unimplemented, naming the
// component or setting, if it is not supported.
absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TOKENIZER_JSON_H_
