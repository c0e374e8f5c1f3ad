#include "engine/config/unknown_key.h"

#include <algorithm>
#include <limits>

namespace megatrain {
namespace {

// Longer keys are typing errors of another kind; comparing only this much bounds the work.
constexpr size_t kComparedMax = 128;

std::string_view LastWord(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace

int EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, kComparedMax);
  b = b.substr(0, kComparedMax);
  // Rows of the table of prefix distances: two back (for swaps), the last, the current.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string NearestKey(std::string_view key, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = std::numeric_limits<int>::max();
  for (const std::string& candidate : known) {
    // A right word in a wrong section costs one more than the word's own errors.
    const int distance = std::min(EditDistance(key, candidate),
                                  EditDistance(LastWord(key), LastWord(candidate)) + 1);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string UnknownKey(std::string_view key, const std::vector<std::string>& known) {
  return "unknown key; did you mean " + NearestKey(key, known) + "?";
}

}  // namespace megatrain
