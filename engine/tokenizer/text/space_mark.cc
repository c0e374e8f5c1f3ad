#include "engine/tokenizer/text/space_mark.h"

namespace megatrain {
namespace {

// Runs begin where a mark does and behind it; neighbours share one.
void AddRun(size_t marked, size_t original, OffsetRuns* runs) {
  if (runs->empty() || runs->back().first != marked) runs->emplace_back(marked, original);
}

}  // namespace

void MarkSpaces(std::string_view text, bool prepend, bool replace, std::string* marked,
                OffsetRuns* runs) {
  marked->clear();
  marked->reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (runs != nullptr) {
    runs->clear();
    runs->emplace_back(0, 0);
  }
  if (prepend) {
    *marked = kSpaceMark;
    if (runs != nullptr) AddRun(marked->size(), 0, runs);
  }
  size_t done = 0;
  while (replace) {
    const size_t space = text.find(' ', done);
    if (space == std::string_view::npos) break;
    marked->append(text, done, space - done);
    if (runs != nullptr) AddRun(marked->size(), space, runs);
    *marked += kSpaceMark;
    done = space + 1;
    if (runs != nullptr) AddRun(marked->size(), done, runs);
  }
  marked->append(text, done);
  if (runs != nullptr) AddRun(marked->size(), text.size(), runs);
}

std::string UnmarkSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  while (true) {
    const size_t mark = text.find(kSpaceMark, done);
    if (mark == std::string_view::npos) break;
    out.append(text, done, mark - done);
    out.push_back(' ');
    done = mark + kSpaceMark.size();
  }
  out.append(text, done);
  return out;
}

}  // namespace megatrain
