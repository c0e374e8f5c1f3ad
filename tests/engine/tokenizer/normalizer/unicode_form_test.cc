#include "engine/tokenizer/normalizer/unicode_form.h"

#include <gtest/gtest.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <random>
#include <string>
#include <vector>

#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr UnicodeForm kForms[] = {UnicodeForm::kNfc, UnicodeForm::kNfd, UnicodeForm::kNfkc,
                                  UnicodeForm::kNfkd};

std::string FormOf(UnicodeForm form, const std::string& text, bool* changed) {
  std::string made;
  RunWriter writer(&made, nullptr);
  EXPECT_TRUE(ApplyForm(form, text, &writer, changed).ok());
  EXPECT_TRUE(*changed || made.empty());
  return *changed ? made : text;
}

// ICU's form of the whole text at once.
std::string IcuForm(UnicodeForm form, const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const all[] = {
      icu::Normalizer2::getNFCInstance(error), icu::Normalizer2::getNFDInstance(error),
      icu::Normalizer2::getNFKCInstance(error), icu::Normalizer2::getNFKDInstance(error)};
  const icu::UnicodeSet known(form == UnicodeForm::kNfc ? u"[[:any:]]" : u"[:age=9.0:]", error);
  const icu::FilteredNormalizer2 instance(*all[static_cast<int>(form)], known);
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  instance.normalizeUTF8(0, icu::StringPiece(text), sink, nullptr, error);
  EXPECT_TRUE(U_SUCCESS(error));
  return result;
}

std::string Times(size_t count, char32_t c) {
  std::string text;
  for (size_t i = 0; i < count; ++i) AppendUtf8(c, &text);
  return text;
}

// Longer than what is handed to ICU as it is.
TEST(UnicodeFormTest, LongRunsOfMarksHaveTheSameFormAsByIcu) {
  // Marks of several classes, some of which decompose to others. The last four begin anew in some
  // forms.
  const std::vector<char32_t> marks = {0x301, 0x316,  0x327, 0x344,  0x345,  0x340,
                                       0x5b0, 0xf71,  0xf72, 0xf73,  0xf81,  0x3099,
                                       0x93c, 0x1dce, 0x9be, 0x1161, 0x11a8, 0xff9e};
  // What begins anew, or is a mark that is newer than Unicode 9.
  const std::vector<char32_t> others = {'a',    0xe9,   0x9c7, 0xac00, 0x1100, 0x30ab,
                                        0xfb1d, 0x4e2d, 0x8d3, 0x1dfa, 0x10efd};
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    const size_t rare = round % 3 == 0 ? 1000000 : 900;
    const size_t kinds = marks.size() - (round % 4 < 2 ? 4 : 0);
    for (int i = 0; i < 2500; ++i) {
      AppendUtf8(i == round % 2 || random() % rare == 0 ? others[random() % others.size()]
                                                        : marks[random() % kinds],
                 &text);
    }
    for (const UnicodeForm form : kForms) {
      bool changed = false;
      EXPECT_TRUE(FormOf(form, text, &changed) == IcuForm(form, text))
          << round << " " << static_cast<int>(form);
    }
  }
}

// By stepping over the marks before each one this would take minutes.
TEST(UnicodeFormTest, AMillionMarksOutOfOrderAreSorted) {
  constexpr size_t kCount = 500000;
  std::string marks;
  for (size_t i = 0; i < kCount; ++i) marks += "\u0301\u0316";
  const std::string below = Times(kCount, 0x316), above = Times(kCount, 0x301);
  bool changed = false;
  EXPECT_TRUE(FormOf(UnicodeForm::kNfd, "a" + marks, &changed) == "a" + below + above);
  EXPECT_TRUE(FormOf(UnicodeForm::kNfc, "a" + marks + "b", &changed) ==
              "\u00e1" + below + above.substr(2) + "b");
  EXPECT_TRUE(FormOf(UnicodeForm::kNfkc, "x" + marks, &changed) == "x" + below + above);
  EXPECT_TRUE(changed);
  EXPECT_TRUE(FormOf(UnicodeForm::kNfc, "x" + below + above, &changed) == "x" + below + above);
  EXPECT_FALSE(changed);
}

}  // namespace
}  // namespace megatrain
