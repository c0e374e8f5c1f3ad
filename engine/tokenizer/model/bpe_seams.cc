#include "engine/tokenizer/model/bpe_seams.h"

#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

void BpeSeams::AddRule(std::string_view left, std::string_view right) {
  joined_.insert(Pair(Utf8At(left, Utf8Before(left, left.size())), Utf8At(right, 0)));
}

}  // namespace megatrain
