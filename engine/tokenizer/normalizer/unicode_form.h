// Unicode's normalization forms, by ICU. As in `tokenizers`, all but NFC leave characters alone
// that are newer than Unicode 9.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_UNICODE_FORM_H_
#define MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_UNICODE_FORM_H_

#include <string_view>

#include "absl/status/status.h"
#include "engine/tokenizer/text/offset_runs.h"

namespace megatrain {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Writes the form of `text` and sets `changed` to true. If `text` is in that form, sets it to false
// and writes nothing. Returns InvalidArgument for more than 1 GiB and Internal if ICU fails.
// REQUIRES: `text` is well-formed UTF-8.
absl::Status ApplyForm(UnicodeForm form, std::string_view text, RunWriter* out, bool* changed);

// Returns true if a text can be cut before `c` and its parts normalized separately.
bool FormBeginsAt(UnicodeForm form, char32_t c);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_UNICODE_FORM_H_
