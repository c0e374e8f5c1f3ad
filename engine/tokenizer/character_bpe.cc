#include "engine/tokenizer/character_bpe.h"

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/byte_token.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

absl::Status CharacterBpe::Initialize(const TextMap<int32_t>& vocabulary) {
  for (int32_t& id : ascii_ids_) id = -1;
  for (const auto& [token, id] : vocabulary) {
    if (token.empty() || Utf8Length(static_cast<unsigned char>(token[0])) != token.size()) continue;
    const char32_t c = Utf8At(token, 0);
    if (c < 128) {
      ascii_ids_[c] = id;
    } else {
      ids_.emplace(c, id);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = ByteToken(static_cast<uint8_t>(byte));
    const auto found = vocabulary.find(token);
    if (found == vocabulary.end()) {
      return absl::UnimplementedError(
          absl::StrCat("tokenizer.json: model.byte_fallback without a token for every byte (",
                       token, " is not in model.vocab) is not supported"));
    }
    byte_ids_[byte] = found->second;
  }
  return absl::OkStatus();
}

int32_t CharacterBpe::Id(char32_t c) const {
  if (c < 128) return ascii_ids_[c];
  const auto found = ids_.find(c);
  return found == ids_.end() ? -1 : found->second;
}

void CharacterBpe::Encode(std::string_view word, const BpeMerges& merges, const BpeSeams& seams,
                          std::vector<BpeSymbol>* symbols,
                          absl::FunctionRef<void(int32_t id, size_t begin)> give) const {
  const auto flush = [&] {
    merges.Apply(symbols);
    for (const BpeSymbol& symbol : *symbols) give(symbol.id, symbol.begin);
    symbols->clear();
  };
  symbols->clear();
  char32_t before = 0;
  for (size_t at = 0; at < word.size();) {
    const char32_t c = Utf8At(word, at);
    const size_t length = Utf8Length(static_cast<unsigned char>(word[at]));
    if (at > 0 && seams.Between(before, c)) flush();
    const auto begin = static_cast<uint32_t>(at);
    const int32_t id = Id(c);
    if (id >= 0) {
      symbols->push_back({id, begin});
    } else {
      for (const char byte : word.substr(at, length)) {
        symbols->push_back({byte_ids_[static_cast<uint8_t>(byte)], begin});
      }
    }
    before = c;
    at += length;
  }
  flush();
}

}  // namespace megatrain
