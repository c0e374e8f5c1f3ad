#include "engine/tokenizer/text/character_table.h"

namespace megatrain {

CharacterTable::CharacterTable(
    absl::FunctionRef<bool(std::string_view character, std::string* normalized)> normalize)
    : entries_(kCodePoints, kContext) {
  std::string character, normalized;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    character.clear();
    AppendUtf8(c, &character);
    if (!normalize(character, &normalized)) continue;
    if (normalized == character) {
      entries_[c] = kSame;
    } else if (normalized.size() <= kSizeMax &&
               forms_.size() + normalized.size() < kFormsBytesMax) {
      entries_[c] = static_cast<Entry>(forms_.size() << kSizeBits | normalized.size());
      forms_ += normalized;
    }
  }
}

}  // namespace megatrain
