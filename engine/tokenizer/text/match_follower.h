// MatchFollower tells where a match that reaches the end of a text may be cut, if the text goes on:
// at a place from which the rest of the text matches up to the same end.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_

#include <cstddef>
#include <string_view>

#include "engine/tokenizer/text/match_program.h"

namespace megatrain {

// Follows attempts to match (MatchProgram) in one text. If two attempts that began at different
// places come to the same state and the same end so far, their matches end at the same place. For
// example, attempts of `\w+` at the bytes 0 and 2 of "aaaa" do so.
//
// Thread safety: const methods may be called from several threads.
class MatchFollower {
 public:
  // Follows an attempt that begins at the byte `begin` of `text`, which goes on. `program` and the
  // text must outlive the follower. REQUIRES: `text` is well-formed UTF-8, and a character begins
  // at `begin` or it is the end.
  MatchFollower(const MatchProgram* program, std::string_view text, size_t begin)
      : program_(program), text_(text), begin_(begin), whole_(program->Follow(text, begin)) {}

  // Returns true if there is a match at `begin`, whatever follows, whose end depends on what
  // follows.
  bool is_open() const {
    return whole_.state != MatchProgram::kDone && whole_.state != MatchProgram::kGaveUp &&
           whole_.end != MatchProgram::kNoMatch;
  }
  // Returns true if an attempt at `place` has a match that ends where the match at `begin` ends,
  // whatever follows. False means that it has none or that this is not known; it is not tried for a
  // place more than 4 KiB before the end. REQUIRES: a character begins at `place`, or it is the
  // end.
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
