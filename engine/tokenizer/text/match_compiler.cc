// Compiles a pattern to the instructions of a MatchProgram.
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/tokenizer/text/match_program.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr size_t kAtomsMax = 31;
constexpr size_t kInstructionsMax = 4096;
constexpr int kUnbounded = -1;

}  // namespace

// Compiles a pattern. A part that is compiled more than once, because it is repeated, is read more
// than once.
class MatchCompiler {
 public:
  MatchCompiler(std::string_view pattern, MatchProgram* out) : pattern_(pattern), out_(out) {}

  bool Run() {
    if (!Alternatives(/*caseless=*/false) || at_ != pattern_.size()) return false;
    Emit({Instruction::kMatch, 0, 0, 0});
    return out_->code_.size() <= kInstructionsMax && out_->atoms_.size() <= kAtomsMax;
  }

 private:
  using Instruction = MatchProgram::Instruction;

  int32_t Here() const { return static_cast<int32_t>(out_->code_.size()); }
  int32_t Emit(const Instruction& instruction) {
    out_->code_.push_back(instruction);
    return Here() - 1;
  }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  bool Alternatives(bool caseless) {
    std::vector<int32_t> ends;
    while (true) {
      // The split goes before what it leads to, so that this is moved.
      const int32_t split = Emit({Instruction::kSplit, 0, Here() + 1, 0});
      if (!Sequence(caseless)) return false;
      if (Peek() != '|') {
        out_->code_[split] = {Instruction::kJump, 0, split + 1, 0};
        break;
      }
      ++at_;
      ends.push_back(Emit({Instruction::kJump, 0, 0, 0}));
      out_->code_[split].or_to = Here();
    }
    for (const int32_t end : ends) out_->code_[end].to = Here();
    return true;
  }

  bool Sequence(bool caseless) {
    while (at_ < pattern_.size() && Peek() != '|' && Peek() != ')') {
      if (!Repeated(caseless) || out_->code_.size() > kInstructionsMax) return false;
    }
    return true;
  }

  // One atom or group.
  bool Item(bool caseless) {
    if (Peek() != '(') {
      const std::optional<int32_t> atom = Atom(caseless);
      if (!atom.has_value()) return false;
      Emit({Instruction::kAtom, *atom, 0, 0});
      return true;
    }
    if (Take("(?i:")) {
      caseless = true;
    } else if (Take("(?-i:")) {
      caseless = false;
    } else if (!Take("(?:")) {
      if (Peek(1) == '?') return false;
      ++at_;
    }
    return Alternatives(caseless) && Take(")");
  }

  // A lookahead of one character. Sets `is_one` if there is one here.
  bool Lookahead(bool caseless, bool* is_one) {
    *is_one = Peek() == '(' && Peek(1) == '?' && (Peek(2) == '!' || Peek(2) == '=');
    if (!*is_one) return true;
    const auto kind = Peek(2) == '!' ? Instruction::kNextIsNot : Instruction::kNextIs;
    at_ += 3;
    const std::optional<int32_t> atom = Atom(caseless);
    if (!atom.has_value() || !Take(")")) return false;
    Emit({kind, *atom, 0, 0});
    return true;
  }

  bool Repeated(bool caseless) {
    // A quantifier reads its item several times, and so do those within it.
    if (++items_ > 16 * kInstructionsMax) return false;
    bool lookahead = false;
    if (!Lookahead(caseless, &lookahead)) return false;
    if (lookahead)
      return std::string_view("*+?{").find(Peek()) == std::string_view::npos || !Peek();
    const size_t begin = at_;
    const int32_t first = Here();
    if (!Item(caseless)) return false;
    const size_t item_end = at_;
    int least = 1, most = 1;
    bool greedy = true, possessive = false;
    if (!Quantifier(&least, &most, &greedy, &possessive)) return false;
    const size_t end = at_;
    if (item_end == end) return true;
    const bool is_atom = pattern_[begin] != '(';
    if (possessive && !is_atom) return false;
    if (most == kUnbounded && !is_atom && MayBeEmpty(first)) return false;
    const int32_t atom = out_->code_[first].atom;
    out_->code_.resize(static_cast<size_t>(first));
    const auto item = [&] {
      at_ = begin;
      return out_->code_.size() <= kInstructionsMax && Item(caseless);
    };
    for (int i = 0; i < least; ++i) {
      if (!item()) return false;
    }
    const auto split = [&] { return Emit({Instruction::kSplit, 0, 0, 0}); };
    const auto lead = [&](int32_t from, int32_t in, int32_t out) {
      out_->code_[from].to = greedy ? in : out;
      out_->code_[from].or_to = greedy ? out : in;
    };
    if (most == kUnbounded) {
      const int32_t loop = split();
      if (!item()) return false;
      Emit({Instruction::kJump, 0, loop, 0});
      lead(loop, loop + 1, Here());
    } else {
      std::vector<int32_t> splits;
      for (int i = least; i < most; ++i) {
        splits.push_back(split());
        if (!item()) return false;
      }
      for (const int32_t from : splits) lead(from, from + 1, Here());
    }
    if (possessive) {
      // Nothing is given back if as many are there as were taken. If fewer than the most were
      // taken, the next is none.
      if (most != kUnbounded) {
        if (least != 0 || most != 1) return false;
        out_->code_.resize(static_cast<size_t>(first));
        const int32_t choice = split();
        at_ = begin;
        if (!item()) return false;
        const int32_t jump = Emit({Instruction::kJump, 0, 0, 0});
        lead(choice, choice + 1, Here());
        Emit({Instruction::kNextIsNot, atom, 0, 0});
        out_->code_[jump].to = Here();
      } else {
        Emit({Instruction::kNextIsNot, atom, 0, 0});
      }
    }
    at_ = end;
    return true;
  }

  // Returns true if the code from `first` on can be passed without a character.
  bool MayBeEmpty(int32_t first) const {
    std::vector<int32_t> open = {first};
    std::vector<bool> seen(out_->code_.size() + 1);
    while (!open.empty()) {
      const int32_t at = open.back();
      open.pop_back();
      if (at == Here()) return true;
      if (seen[static_cast<size_t>(at)]) continue;
      seen[static_cast<size_t>(at)] = true;
      const Instruction& code = out_->code_[static_cast<size_t>(at)];
      if (code.kind == Instruction::kSplit) open.push_back(code.or_to);
      if (code.kind == Instruction::kSplit || code.kind == Instruction::kJump) {
        open.push_back(code.to);
      } else if (code.kind != Instruction::kAtom) {
        open.push_back(at + 1);
      }
    }
    return false;
  }

  bool Quantifier(int* least, int* most, bool* greedy, bool* possessive) {
    if (Take("*")) {
      *least = 0;
      *most = kUnbounded;
    } else if (Take("+")) {
      *most = kUnbounded;
    } else if (Take("?")) {
      *least = 0;
    } else if (Take("{")) {
      const auto number = [this] {
        int value = 0;
        for (; std::isdigit(static_cast<unsigned char>(Peek())) != 0; ++at_) {
          value = 10 * value + (Peek() - '0');
        }
        return value;
      };
      *least = *most = number();
      if (Take(",")) *most = Peek() == '}' ? kUnbounded : number();
      if (!Take("}") || (*most != kUnbounded && *most < *least)) return false;
    } else {
      return true;
    }
    if (Take("?")) {
      *greedy = false;
    } else if (Take("+")) {
      *possessive = true;
    }
    return true;
  }

  // Returns the number of the atom here; nullopt if there is none.
  std::optional<int32_t> Atom(bool caseless) {
    const size_t begin = at_;
    const char c = Peek();
    if (c == '\0' || std::string_view("^$*+?{}()|]").find(c) != std::string_view::npos) {
      return std::nullopt;
    }
    if (c == '[') {
      ++at_;
      if (Peek() == '^') ++at_;
      while (Peek() != ']') {
        if (at_ >= pattern_.size() || Peek() == '[') return std::nullopt;
        if (Peek() == '\\') {
          SkipEscape();
        } else {
          ++at_;
        }
      }
      ++at_;
    } else if (c == '\\') {
      if (Peek(1) == 'A' || Peek(1) == 'z') return std::nullopt;
      SkipEscape();
    } else {
      at_ += Utf8Length(static_cast<unsigned char>(c));
    }
    std::string text(pattern_.substr(begin, at_ - begin));
    text = (caseless ? "(?i:" : "(?:") + text + ")";
    for (size_t i = 0; i < out_->atoms_.size(); ++i) {
      if (out_->atoms_[i]->pattern() == text) return static_cast<int32_t>(i);
    }
    if (out_->atoms_.size() == kAtomsMax) return std::nullopt;
    out_->atoms_.push_back(*PcrePattern::Compile(text, text));
    return static_cast<int32_t>(out_->atoms_.size() - 1);
  }

  // \p{..}, \x{..}, \xHH or \ and one character.
  void SkipEscape() {
    const char c = Peek(1);
    if ((c == 'p' || c == 'P' || c == 'x') && Peek(2) == '{') {
      at_ = pattern_.find('}', at_) + 1;
    } else {
      at_ += c == 'x' ? 4 : 2;
    }
  }

  const std::string_view pattern_;
  MatchProgram* const out_;
  size_t at_ = 0;
  size_t items_ = 0;  // read so far, again and again within quantifiers
};

std::unique_ptr<const MatchProgram> MatchProgram::Make(std::string_view pattern) {
  auto program = std::unique_ptr<MatchProgram>(new MatchProgram());
  if (!MatchCompiler(pattern, program.get()).Run() || !program->Begin()) return nullptr;
  return program;
}

}  // namespace megatrain
