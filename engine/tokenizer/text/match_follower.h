// Follows the matches of a regular expression in a text that goes on.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {

// A backtracking matcher tries ways through the pattern in their order, and the first that succeeds
// is the match. A follower follows all of them at once, character by character, as an ordered list
// of places in the pattern (Pike's algorithm; Cox, "Regular Expression Matching: the Virtual
// Machine Approach"). The end of a match depends only on that list, on where the best way so far
// ended, and on what follows. So if two attempts that began at different places have the same list
// and end, their matches end at the same place.
//
// Thread safety: const methods may be called from several threads.
class MatchProgram {
 public:
  // `pattern` is in PCRE2's syntax, as TranslateRegex writes it. Returns null if the pattern is too
  // large or has something that is not followed: anchors, lookbehinds, lookaheads of more than one
  // character, atomic groups of more than one character, repeated groups that may be empty.
  // REQUIRES: PCRE2 can compile it.
  static std::unique_ptr<const MatchProgram> Make(std::string_view pattern);

  // Returns true if every match is one character, whatever is around it.
  bool is_one_character() const {
    return code_.size() == 3 && code_[0].kind == Instruction::kJump &&
           code_[1].kind == Instruction::kAtom;
  }

 private:
  friend class MatchFollower;
  friend class MatchCompiler;
  struct Instruction {
    enum Kind { kAtom, kSplit, kJump, kNextIs, kNextIsNot, kMatch } kind;
    int32_t atom = 0;   // of kAtom, kNextIs and kNextIsNot
    int32_t to = 0;     // of kSplit (the way that is tried first) and kJump
    int32_t or_to = 0;  // of kSplit
  };
  // The atoms that the character is, as bits.
  uint32_t Atoms(char32_t c) const;

  std::vector<Instruction> code_;
  std::vector<std::unique_ptr<SplitRegex>> atoms_;  // of one character each
  // Atoms by character, with kKnown set; 0: not yet known. Pages that are not used take no memory.
  std::unique_ptr<uint32_t[], decltype(&std::free)> known_{nullptr, &std::free};
};

// Follows attempts in one text. Not thread-safe.
class MatchFollower {
 public:
  // Follows an attempt that begins at `begin` of `text`, which goes on. `program` and the text must
  // outlive the follower. REQUIRES: `text` is well-formed UTF-8.
  MatchFollower(const MatchProgram* program, std::string_view text, size_t begin);

  // Returns true if there is a match at `begin`, whatever follows, and it may go on.
  bool is_open() const { return whole_.list != 0 && whole_.end != std::string_view::npos; }
  // Returns true if an attempt at `place` has a match that ends where that at `begin` ends,
  // whatever follows. False means that it has none, or that it is not known. REQUIRES: a character
  // begins at `place`, or it is the end.
  bool EndsAlike(size_t place) {
    if (!is_open()) return false;
    return place == begin_ || (text_.size() - place <= kBytesMax && Follow(place) == whole_);
  }

 private:
  static constexpr size_t kBytesMax = size_t{4} << 10;  // that are followed again for a place
  struct State {
    int32_t list;  // the number of the list of ways; 0: none is left
    size_t end;    // of the best match so far
    bool operator==(const State&) const = default;
  };
  struct Step {
    int32_t list;
    bool match;  // before the character
  };
  State Follow(size_t place);
  Step Next(int32_t list, uint32_t atoms);
  int32_t Number(std::vector<int32_t> list);

  const MatchProgram* const program_;
  const std::string_view text_;
  const size_t begin_;
  std::vector<std::vector<int32_t>> lists_;
  std::map<std::vector<int32_t>, int32_t> numbers_;
  std::map<std::pair<int32_t, uint32_t>, Step> steps_;
  State whole_ = {0, std::string_view::npos};
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_FOLLOWER_H_
