// Arbitrary bytes as tokenizer.json, tokenizer.model and a precompiled charsmap, as text for them,
// and as text for a tokenizer that works. The input is tokenizer.json up to the first zero byte and
// text behind it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/base/thread_pool.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"
#include "engine/tokenizer/normalizer/precompiled_charsmap.h"
#include "engine/tokenizer/parallel_encode.h"
#include "engine/tokenizer/text/utf8.h"

namespace {

void RoundTrip(const megatrain::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids, ids_again;
  std::vector<size_t> offsets;
  if (!tokenizer.Encode(text, &ids).ok()) return;
  if (!tokenizer.EncodeWithOffsets(text, &ids_again, &offsets).ok()) std::abort();
  if (ids != ids_again || offsets.size() != ids.size()) std::abort();
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocabulary()) std::abort();
  }
  tokenizer.Decode(ids, /*skip_special=*/true);
  tokenizer.Decode(ids, /*skip_special=*/false);
  // By pieces on several threads.
  static auto* const kPool = new megatrain::ThreadPool(3);
  ids.clear();
  megatrain::PieceState state;
  const auto parallel = megatrain::EncodePieceInParallel(tokenizer, *kPool, text, /*last=*/true,
                                                         &state, &ids, /*piece_bytes_min=*/4);
  if (parallel.ok() && (*parallel != text.size() || ids != ids_again)) std::abort();
  // By pieces, in windows of a few bytes.
  ids.clear();
  state = {};
  for (size_t take = 5;;) {
    const bool last = take >= text.size();
    const auto size = tokenizer.EncodePiece(text.substr(0, take), last, &state, &ids);
    if (!size.ok()) return;  // a regular expression gave up
    if (last) break;
    text.remove_prefix(*size);
    take = *size == 0 ? take * 2 : 5;
  }
  if (ids != ids_again) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view json = input.substr(0, zero);
  const std::string_view text = zero == std::string_view::npos ? input : input.substr(zero + 1);
  const auto made = megatrain::MakeHfTokenizer({.tokenizer_json = json});
  if (made.ok()) {
    RoundTrip(**made, text);
    return 0;
  }
  static const auto* const kBytes = new auto(megatrain::MakeBytesTokenizer());
  RoundTrip(**kBytes, text);
  const auto config = megatrain::MakeHfTokenizer({.tokenizer_json = megatrain::BytesTokenizerJson(),
                                                  .tokenizer_config = json,
                                                  .special_tokens_map = json,
                                                  .model_config = json,
                                                  .generation_config = json});
  if (config.ok()) RoundTrip(**config, text);
  const auto model = megatrain::MakeHfTokenizer({.tokenizer_model = input});
  if (model.ok()) RoundTrip(**model, "some text \xe2\x96\x81 <s> 1\n");
  const auto charsmap = megatrain::PrecompiledCharsmap::Parse(input);
  if (charsmap.ok() && megatrain::CheckUtf8(text).ok()) {
    std::string out;
    megatrain::OffsetRuns runs;
    megatrain::RunWriter writer(&out, &runs);
    charsmap->Apply(text, &writer);
  }
  return 0;
}
