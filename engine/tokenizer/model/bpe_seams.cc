#include "engine/tokenizer/model/bpe_seams.h"

#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

void BpeSeams::AddRule(std::string_view left, std::string_view right) {
  const char32_t before = Utf8At(left, Utf8Before(left, left.size()));
  const char32_t after = Utf8At(right, 0);
  if (before < 128 && after < 128) {
    ascii_joined_.set(before * 128 + after);
  } else {
    joined_.insert(Pair(before, after));
  }
}

}  // namespace megatrain
