// Cuts text into words by the class of each character.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_SPLIT_CHARACTER_CLASSES_H_
#define MEGATRAIN_ENGINE_TOKENIZER_SPLIT_CHARACTER_CLASSES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/tokenizer/text/split_regex.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

// Holds a class for every character. A text is cut between two characters of different classes.
// That gives the same words as a regular expression that matches one character at a time, in less
// time.
//
// Thread safety: const methods may be called from several threads.
class CharacterClasses {
 public:
  using Class = uint8_t;
  static constexpr Class kRemoved = 0;   // characters that belong to no word
  static constexpr Class kIsolated = 1;  // each is a word
  static constexpr Class kRun = 2;  // this one and higher ones: a run of one such class is a word

  // Every character has the class kRun.
  CharacterClasses() : classes_(kCodePoints, kRun) {}

  // Gives all characters that `character` matches the class `value`. Returns the errors of
  // SplitRegex::ForEachMatch, after which perhaps only some of the characters have the class.
  // REQUIRES: every match of `character` is one character, whatever is around it.
  absl::Status Assign(const SplitRegex& character, Class value);

  // Joins two cuts: afterwards this object cuts a text as before, and then each word as `next`
  // does. Returns false, with no change, if there would be more classes than Class can count.
  bool Append(const CharacterClasses& next);

  // Returns the class of the character that begins at byte `offset`. REQUIRES: `text` is
  // well-formed UTF-8, and a character begins there.
  Class At(std::string_view text, size_t offset) const { return classes_[Utf8At(text, offset)]; }

 private:
  static constexpr size_t kCodePoints = 0x110000;

  std::vector<Class> classes_;  // by code point
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_SPLIT_CHARACTER_CLASSES_H_
