// PrecompiledCharsmap is SentencePiece's table of character replacements (precompiled_charsmap). It
// is applied as in `tokenizers` (Hugging Face's library).
#ifndef MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_PRECOMPILED_CHARSMAP_H_
#define MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_PRECOMPILED_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/text/offset_runs.h"

namespace megatrain {

// Parse makes one; one that is made without it must not be used. Thread safety: const methods may
// be called from several threads.
class PrecompiledCharsmap {
 public:
  // `blob` is a 32-bit little-endian size, a double-array trie of that many bytes, and the
  // replacements, each ended by a zero byte. Copies what it needs. Returns InvalidArgument if sizes
  // do not fit or a replacement is not UTF-8 or has more than 255 bytes.
  static absl::StatusOr<PrecompiledCharsmap> Parse(std::string_view blob);

  // Writes `text` with its replacements to `out`. A grapheme cluster of less than 6 bytes that
  // begins with an entry of the table is replaced as a whole. In other clusters each character that
  // begins with an entry is replaced. REQUIRES: `text` is well-formed UTF-8.
  void Apply(std::string_view text, RunWriter* out) const;

 private:
  // Returns the replacement of the shortest prefix of `text` that is in the table.
  std::optional<std::string_view> Find(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Returns where the grapheme cluster (Unicode's UAX 29, extended, without rule GB9c) that begins at
// `offset` ends. REQUIRES: `text` is well-formed UTF-8 and a character begins at `offset`.
size_t GraphemeEnd(std::string_view text, size_t offset);

// Returns true if a grapheme cluster always ends between these two neighbours, whatever is around
// them. False does not mean that none does.
bool ClusterEndsBetween(char32_t before, char32_t after);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_PRECOMPILED_CHARSMAP_H_
