// Maps offsets in a text that was rewritten to offsets in its original.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_OFFSET_RUNS_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_OFFSET_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// A run of the new text begins at its byte `begin` and ends where the next run begins. If `flat`,
// all of it stands for the character at byte `original` of the original. Otherwise it is a copy of
// the bytes from there on. For example, the ligature U+FB01, which has 3 bytes, with "x" behind it
// becomes "fix": the runs are {0, 0, flat} and {2, 3, not flat}.
struct OffsetRun {
  size_t begin;
  size_t original;
  bool flat;
};

// The runs of a text, ascending in `begin`, the first at 0. No runs mean that the texts are equal
// or the new one is empty. The runs of equal texts may also be one copy of all bytes.
using OffsetRuns = std::vector<OffsetRun>;

// Returns the offset in the original of byte `offset` of the new text. The search begins at the run
// with the index `*hint`, which is set to the run that was found. Begin with 0.
size_t OriginalOffset(const OffsetRuns& runs, size_t offset, size_t* hint);

// Joins two maps. `*runs` maps a text C to B and `inner` maps B to A; `*runs` becomes the map of C
// to A.
void ComposeRuns(const OffsetRuns& inner, OffsetRuns* runs);

// Writes a text and its runs, from left to right.
class RunWriter {
 public:
  // Clears `text` and `runs`, which must outlive the writer. `runs` may be null. Once the text has
  // more than `bytes_max` bytes, nothing more is written; the caller sees that from its size.
  RunWriter(std::string* text, OffsetRuns* runs, size_t bytes_max = SIZE_MAX)
      : text_(text), runs_(runs), bytes_max_(bytes_max) {
    text->clear();
    if (runs != nullptr) runs->clear();
  }
  // Copies the bytes [begin, end) of `source`, the original. Does nothing if there are none.
  void Keep(std::string_view source, size_t begin, size_t end) {
    if (begin >= end || text_->size() > bytes_max_) return;
    if (runs_ != nullptr) Begin(begin, false);
    text_->append(source, begin, end - begin);
  }
  // Writes `text` for the character at byte `original` of the original.
  void Put(std::string_view text, size_t original) {
    if (text.empty() || text_->size() > bytes_max_) return;
    if (runs_ != nullptr) Begin(original, true);
    text_->append(text);
  }

 private:
  void Begin(size_t original, bool flat);

  std::string* const text_;
  OffsetRuns* const runs_;
  const size_t bytes_max_;
};

// One text of a chain. The text is the part, from byte `base` on, of a whole text. `runs` maps that
// whole text to the next text of the chain, from which it was rewritten. The last text of a chain
// is a part of the original. The pointers are not owned. Looking an offset up moves `hint` here and
// in the texts behind it, so one thread at a time may do it.
struct OffsetChain {
  size_t base = 0;                   // where the text begins in what `runs` maps
  const OffsetRuns* runs = nullptr;  // null: offsets are the same in the next text
  OffsetChain* next = nullptr;       // the text that `runs` maps to; null: the original
  size_t hint = 0;                   // of OriginalOffset

  // Returns the offset in the original of byte `offset` of this text.
  size_t Original(size_t offset) {
    offset += base;
    if (runs != nullptr) offset = OriginalOffset(*runs, offset, &hint);
    return next != nullptr ? next->Original(offset) : offset;
  }
  // Does as Original, but stops one text before the original: returns the offset in the whole text
  // that the last link but one maps. In a tokenizer's chains that is the normalized text. If this
  // is the only link, returns the offset plus `base`.
  size_t InNormalized(size_t offset) {
    offset += base;
    if (next == nullptr || next->next == nullptr) return offset;
    if (runs != nullptr) offset = OriginalOffset(*runs, offset, &hint);
    return next->InNormalized(offset);
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_OFFSET_RUNS_H_
