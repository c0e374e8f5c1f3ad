// Follows the matches of a regular expression in a text that goes on.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_

#include <cstddef>
#include <string_view>

#include "engine/tokenizer/text/match_program.h"

namespace megatrain {

// Follows attempts in one text. If two that began at different places come to the same state and
// the same end so far, their matches end at the same place.
class MatchFollower {
 public:
  // Follows an attempt that begins at the byte `begin` of `text`, which goes on. `program` and the
  // text must outlive the follower. REQUIRES: `text` is well-formed UTF-8.
  MatchFollower(const MatchProgram* program, std::string_view text, size_t begin)
      : program_(program), text_(text), begin_(begin), whole_(program->Follow(text, begin)) {}

  // Returns true if there is a match at `begin`, whatever follows, and it may go on.
  bool is_open() const {
    return whole_.state != MatchProgram::kDone && whole_.state != MatchProgram::kGaveUp &&
           whole_.end != MatchProgram::kNoMatch;
  }
  // Returns true if an attempt at `place` has a match that ends where that at `begin` ends,
  // whatever follows. False means that it has none, or that it is not known. REQUIRES: a character
  // begins at `place`, or it is the end.
  bool EndsAlike(size_t place) const {
    if (!is_open()) return false;
    return place == begin_ ||
           (text_.size() - place <= kBytesMax && program_->Follow(text_, place) == whole_);
  }

 private:
  static constexpr size_t kBytesMax = size_t{4} << 10;  // that are followed again for a place

  const MatchProgram* const program_;
  const std::string_view text_;
  const size_t begin_;
  const MatchProgram::Attempt whole_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_
