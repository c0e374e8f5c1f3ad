// MatchProgram matches a regular expression by an automaton. An attempt to match takes time linear
// in the bytes that it looks at, which may go on behind the end of the match.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_PROGRAM_H_
#define MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_PROGRAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/tokenizer/text/pcre_pattern.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

// EndAt(text.size(), Follow(text, place)) is the end of the match that begins at `place` of a whole
// text, unless Follow gives up. It is that of a backtracking matcher, which tries ways through the
// pattern in their order: the first that succeeds is the match.
//
// A program follows all ways at once, character by character, as an ordered list of places in the
// pattern (Pike's algorithm; Cox, "Regular Expression Matching: the Virtual Machine Approach"). Few
// such lists occur for a pattern. Each is a state, and the step from one to the next by a character
// is worked out once. The end of a match depends only on the state, on where the best way so far
// ended, and on what follows.
//
// Thread safety: const methods may be called from several threads.
class MatchProgram {
 public:
  // `pattern` is in PCRE2's syntax, as TranslateRegex writes it. Returns null if the pattern is too
  // large, there is no memory for its tables, or the pattern has something that is not followed,
  // such as anchors, lookbehinds, lookaheads of more than one character, atomic groups, possessive
  // groups, or groups that may be empty and repeat without bound. REQUIRES: PCRE2 can compile the
  // pattern.
  static std::unique_ptr<const MatchProgram> Make(std::string_view pattern);

  using State = uint16_t;
  static constexpr State kDone = 0;    // no way is left: nothing that follows changes the match
  static constexpr State kGaveUp = 1;  // too many states or kinds of characters, or no memory
  static constexpr size_t kNoMatch = std::string_view::npos;

  // The progress of an attempt to match.
  struct Attempt {
    State state;
    size_t end;  // of the best match so far, or kNoMatch
    bool operator==(const Attempt&) const = default;
  };

  // Follows an attempt to match that begins at the byte `place`, up to the end of the text. Stops
  // before if the state becomes kDone or kGaveUp. After kGaveUp the match is not known, and PCRE2
  // must find it. If `followed` is not null, adds to `*followed` how many bytes were passed.
  // REQUIRES: `text` is well-formed UTF-8, and a character begins at `place` or it is the end.
  Attempt Follow(std::string_view text, size_t place, size_t* followed = nullptr) const {
    const size_t first = place;
    Attempt attempt = {kBegin, kNoMatch};
    while (place < text.size()) {
      const char32_t c = Utf8At(text, place);
      Class at = std::atomic_ref(classes_[c]).load(std::memory_order_relaxed);
      if (at == kUnknown) at = Classify(c);
      const uint16_t step = StepFrom(attempt.state, at);
      if ((step & kMatches) != 0) attempt.end = place;
      attempt.state = step & kStateMask;
      if (attempt.state < kBegin) break;
      place += Utf8Length(static_cast<unsigned char>(text[place]));
    }
    if (followed != nullptr) *followed += place - first;
    return attempt;
  }

  // Returns where the match of `attempt` ends. `size` is that of the text that Follow was given.
  // Returns kNoMatch if there is no match. REQUIRES: the attempt's state is not kGaveUp.
  size_t EndAt(size_t size, const Attempt& attempt) const {
    return (StepFrom(attempt.state, kEndOfText) & kMatches) != 0 ? size : attempt.end;
  }

  // Returns true if the pattern is one character or class, so that every match is one character,
  // whatever is around it.
  bool is_one_character() const {
    return code_.size() == 3 && code_[0].kind == Instruction::kJump &&
           code_[1].kind == Instruction::kAtom;
  }

 private:
  friend class MatchCompiler;
  struct Instruction {
    enum Kind { kAtom, kSplit, kJump, kNextIs, kNextIsNot, kMatch } kind;
    int32_t atom = 0;   // of kAtom, kNextIs and kNextIsNot
    int32_t to = 0;     // of kSplit (the way that is tried first) and kJump
    int32_t or_to = 0;  // of kSplit
  };
  // Characters that the same atoms match.
  using Class = uint8_t;
  static constexpr Class kUnknown = 0;    // of a character that was not met yet
  static constexpr Class kEndOfText = 1;  // which no atom matches
  static constexpr Class kTooMany = 63;
  static constexpr size_t kClasses = 64;
  static constexpr State kBegin = 2;
  static constexpr size_t kStates = 1024;
  // A step: the state it leads to, whether a match ends before the character, and whether it was
  // worked out.
  static constexpr uint16_t kStateMask = kStates - 1;
  static constexpr uint16_t kMatches = 1 << 14;
  static constexpr uint16_t kWorkedOut = 1 << 15;
  template <typename T>
  using Zeros = std::unique_ptr<T[], decltype(&std::free)>;  // untouched pages take no memory

  MatchProgram() = default;
  // Makes the automaton's tables, when the instructions are there. False: no memory.
  bool Begin();
  uint16_t StepFrom(State state, Class at) const {
    const uint16_t step =
        std::atomic_ref(steps_[state * kClasses + at]).load(std::memory_order_relaxed);
    return step != 0 ? step : WorkOut(state, at);
  }
  Class Classify(char32_t c) const;  // with its neighbours
  uint16_t WorkOut(State state, Class at) const;

  std::vector<Instruction> code_;
  std::vector<std::unique_ptr<const PcrePattern>> atoms_;  // of one character each

  // Entries are written under the mutex, always with the same value, and read without it: what an
  // entry says is all there is to it.
  Zeros<Class> classes_{nullptr, &std::free};   // of characters
  Zeros<uint16_t> steps_{nullptr, &std::free};  // [state][class]; 0: not worked out
  mutable Mutex mutex_;
  mutable std::vector<uint32_t> class_atoms_ ABSL_GUARDED_BY(mutex_);       // as bits, by class
  mutable std::vector<std::vector<int32_t>> ways_ ABSL_GUARDED_BY(mutex_);  // of a state
  mutable std::map<std::vector<int32_t>, State> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_TEXT_MATCH_PROGRAM_H_
