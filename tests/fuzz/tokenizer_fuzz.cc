// Arbitrary bytes as tokenizer.json, as text for it, and as text for a tokenizer that works. The
// input is tokenizer.json up to the first zero byte and text behind it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/bytes_tokenizer.h"

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
  ids.clear();
  if (!tokenizer.EncodeContinued(text, &ids).ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view json = input.substr(0, zero);
  const std::string_view text = zero == std::string_view::npos ? input : input.substr(zero + 1);
  const auto made = megatrain::MakeBpeTokenizer(json, "", "");
  if (made.ok()) RoundTrip(**made, text);
  static const auto* const kBytes = new auto(megatrain::MakeBpeTokenizer(
      megatrain::BytesTokenizerJson(), megatrain::BytesTokenizerConfigJson(), ""));
  if (!kBytes->ok()) std::abort();
  RoundTrip(***kBytes, text);
  const auto config = megatrain::MakeBpeTokenizer(megatrain::BytesTokenizerJson(), json, json);
  if (config.ok()) RoundTrip(**config, text);
  return 0;
}
