// Treats UTF-8 as Python treats its str: counts, cuts, classifies and maps code points.
//
// REQUIRES, for all functions: texts are well-formed UTF-8. Offsets and sizes are in bytes, except
// where a name says points (code points). Views that are returned point into `text`. Tables are
// ICU's.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_PYTHON_UNICODE_TEXT_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_PYTHON_UNICODE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::python {

// Returns len(text).
size_t CountPoints(std::string_view text);
// Returns the byte offset of code point `point` (from 0), or text.size() if there are not as many.
size_t OffsetOfPoint(std::string_view text, size_t point);
// Returns text[start:stop], with `start` and `stop` in code points. REQUIRES: start <= stop.
std::string_view SubPoints(std::string_view text, size_t start, size_t stop);

bool IsSpace(char32_t point);      // str.isspace of one character
bool IsPrintable(char32_t point);  // str.isprintable of one character

// The questions that Python's str.is...() answer. All but isascii and isprintable are false for "".
enum class TextClass {
  kAlpha,
  kAlnum,
  kAscii,
  kDecimal,
  kDigit,
  kIdentifier,
  kLower,
  kNumeric,
  kPrintable,
  kSpace,
  kTitle,
  kUpper,
};
bool IsOfClass(std::string_view text, TextClass text_class);

// Return `text` in another case, with Unicode's special cases (U+00DF, a sharp s, becomes "SS").
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Casefold(std::string_view text);
std::string Title(std::string_view text);       // str.title
std::string Capitalize(std::string_view text);  // str.capitalize
std::string Swapcase(std::string_view text);

// Does str.strip: drops the characters of `chars`, or white space if `chars` is null, at the chosen
// ends.
std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right);

// Does str.split, or str.rsplit if `from_right`. Cuts at `separator`, or at runs of white space if
// it is null, at most `splits_max` times if that is not negative. REQUIRES: a separator is not
// empty.
std::vector<std::string_view> Split(std::string_view text, const std::string_view* separator,
                                    int64_t splits_max, bool from_right);
// Does str.splitlines.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// Return the offset of the first and the last `part` in `text`, or npos, as std::string_view's
// functions do. They take time in proportion to the sum of both lengths, not to the product.
size_t FindFirst(std::string_view text, std::string_view part);
size_t FindLast(std::string_view text, std::string_view part);

// Does str.replace, at most `count_max` times if that is not negative. Returns false if the result
// would have more than `bytes_max` bytes; `*result` is then unspecified.
bool Replace(std::string_view text, std::string_view from, std::string_view to, int64_t count_max,
             size_t bytes_max, std::string* result);

// Returns repr(text): in quotes, with escapes.
std::string Quote(std::string_view text);

// Escapes & < > " and ' for HTML, as MarkupSafe does.
std::string EscapeHtml(std::string_view text);

}  // namespace megatrain::python

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_PYTHON_UNICODE_TEXT_H_
