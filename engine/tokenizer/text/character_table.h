// CharacterTable tabulates what normalizations make of single characters.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_TABLE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

// Holds the normalized form of each character below U+20000 whose form does not depend on its
// neighbours. Most text consists of such characters, and a look-up costs far less than the
// normalizations.
//
// Thread safety: const methods may be called from several threads.
class CharacterTable {
 public:
  using Entry = uint32_t;
  static constexpr Entry kSame = 0;     // the character stays as it is
  static constexpr Entry kContext = 1;  // its form depends on its neighbours, or is not known

  // Calls normalize(character, &normalized) for each character below U+20000. It must set
  // `normalized` to the form and return true, or return false if the form depends on the
  // neighbours. A form of more than 255 bytes is not kept, nor one beyond 16 MiB of all forms: the
  // entry is kContext.
  explicit CharacterTable(
      absl::FunctionRef<bool(std::string_view character, std::string* normalized)> normalize);

  // Returns the entry of the character at `offset`. REQUIRES: `text` is well-formed UTF-8 and a
  // character begins there.
  Entry At(std::string_view text, size_t offset) const {
    const char32_t c = Utf8At(text, offset);
    return c < kCodePoints ? entries_[c] : kContext;
  }
  // Returns the normalized form that `entry` stands for. Valid as long as the table. REQUIRES: the
  // entry is from At, and is neither kSame nor kContext.
  std::string_view Form(Entry entry) const {
    return std::string_view(forms_).substr(entry >> kSizeBits, entry & kSizeMax);
  }

 private:
  static constexpr size_t kCodePoints = 0x20000;
  static constexpr int kSizeBits = 8;
  static constexpr size_t kSizeMax = (1 << kSizeBits) - 1;
  static constexpr size_t kFormsBytesMax = size_t{1} << (32 - kSizeBits);

  std::vector<Entry> entries_;  // by code point; otherwise a place in `forms_` and a size
  std::string forms_ = " ";     // no form is at 0, where it might look like kSame or kContext
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_CHARACTER_TABLE_H_
