#include "engine/tokenizer/split/character_classes.h"

#include <algorithm>
#include <string>

namespace megatrain {

absl::Status CharacterClasses::Assign(const SplitRegex& character, Class value) {
  // All characters in one text cost far less than a text of each.
  std::string all;
  all.reserve(4 * kCodePoints);
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (c < 0xd800 || c > 0xdfff) AppendUtf8(c, &all);
  }
  return character.ForEachMatch(
      all, [&](size_t begin, size_t) { classes_[Utf8At(all, begin)] = value; });
}

bool CharacterClasses::Append(const CharacterClasses& next) {
  std::vector<std::pair<Class, Class>> runs;  // of both; the class is kRun + the place in here
  std::vector<Class> joined(kCodePoints);
  for (size_t c = 0; c < kCodePoints; ++c) {
    const Class first = classes_[c];
    const Class second = next.classes_[c];
    if (std::min(first, second) < kRun) {  // removed by either, else isolated by either
      joined[c] = std::min(first, second);
      continue;
    }
    const std::pair<Class, Class> both = {first, second};
    const auto place = std::find(runs.begin(), runs.end(), both) - runs.begin();
    if (place == static_cast<ptrdiff_t>(runs.size())) runs.push_back(both);
    if (place + kRun > 0xff) return false;
    joined[c] = static_cast<Class>(place + kRun);
  }
  classes_ = std::move(joined);
  return true;
}

}  // namespace megatrain
