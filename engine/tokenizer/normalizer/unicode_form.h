// Brings texts into Unicode's normalization forms, by ICU. As in `tokenizers` (Hugging Face's
// library), all forms but NFC leave characters alone that are newer than Unicode 9.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_UNICODE_FORM_H_
#define MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_UNICODE_FORM_H_

#include <string_view>

#include "absl/status/status.h"
#include "engine/tokenizer/text/offset_runs.h"

namespace megatrain {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Writes the form of `text` to `out` and sets `*changed` to true. If `text` is in that form
// already, sets `*changed` to false and writes nothing. Returns InvalidArgument for more than 1
// GiB, unless all characters are ASCII (for NFC, below U+0300). Returns Internal if ICU fails.
// REQUIRES: `text` is well-formed UTF-8.
absl::Status ApplyForm(UnicodeForm form, std::string_view text, RunWriter* out, bool* changed);

// Returns true if any text can be cut before the character `c` and its parts normalized separately.
bool FormBeginsAt(UnicodeForm form, char32_t c);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_UNICODE_FORM_H_
