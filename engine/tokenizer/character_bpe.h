// BPE whose symbols are characters, as in SentencePiece and Llama 2.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_CHARACTER_BPE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_CHARACTER_BPE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/tokenizer/bpe_merge.h"
#include "engine/tokenizer/bpe_seams.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {

// A character that is not a token becomes the tokens of its bytes (byte_token.h), all with the
// offset of the character. Thread safety: const methods may be called from several threads.
class CharacterBpe {
 public:
  // Must be called once, before Encode. Copies the ids that it needs. Returns Unimplemented if a
  // byte has no token.
  absl::Status Initialize(const TextMap<int32_t>& vocabulary);

  // Merges `word`, well-formed UTF-8, and calls give(id, begin) for its tokens from left to right.
  // `symbols` is a buffer whose content is overwritten. Time is O(n log n) in the longest stretch
  // without a seam and O(n) in the length of the word.
  void Encode(std::string_view word, const BpeMerges& merges, const BpeSeams& seams,
              std::vector<BpeSymbol>* symbols,
              absl::FunctionRef<void(int32_t id, size_t begin)> give) const;

 private:
  int32_t Id(char32_t c) const;  // -1 if it is not a token

  int32_t ascii_ids_[128];
  absl::flat_hash_map<char32_t, int32_t> ids_;
  int32_t byte_ids_[256];
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_CHARACTER_BPE_H_
