#include "engine/tokenizer/text/match_follower.h"

#include <cctype>
#include <optional>
#include <string>

#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr uint32_t kKnown = uint32_t{1} << 31;
constexpr size_t kAtomsMax = 31;
constexpr size_t kInstructionsMax = 4096;
constexpr size_t kListsMax = 1024;  // different ones that are met; an expression has few
constexpr uint32_t kCodePoints = 0x110000;
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
    out_->atoms_.push_back(SplitRegex::CompilePcre(text));
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
  auto program = std::make_unique<MatchProgram>();
  if (!MatchCompiler(pattern, program.get()).Run()) return nullptr;
  program->known_.reset(static_cast<uint32_t*>(std::calloc(kCodePoints, sizeof(uint32_t))));
  if (program->known_ == nullptr) return nullptr;
  return program;
}

uint32_t MatchProgram::Atoms(char32_t c) const {
  const std::atomic_ref<uint32_t> known(known_[c]);
  uint32_t atoms = known.load(std::memory_order_relaxed);
  if (atoms != 0) return atoms;
  std::string text;
  AppendUtf8(c, &text);
  atoms = kKnown;
  for (size_t i = 0; i < atoms_.size(); ++i) {
    const absl::Status status =
        atoms_[i]->ForEachMatch(text, [&](size_t, size_t) { atoms |= uint32_t{1} << i; });
    if (!status.ok()) return atoms;  // out of memory: seen as no match, and asked again
  }
  known.store(atoms, std::memory_order_relaxed);
  return atoms;
}

MatchFollower::MatchFollower(const MatchProgram* program, std::string_view text, size_t begin)
    : program_(program), text_(text), begin_(begin) {
  Number({});
  whole_ = Follow(begin);
}

int32_t MatchFollower::Number(std::vector<int32_t> list) {
  const auto [found, is_new] = numbers_.emplace(list, static_cast<int32_t>(lists_.size()));
  if (is_new) lists_.push_back(std::move(list));
  return found->second;
}

MatchFollower::State MatchFollower::Follow(size_t place) {
  State state = {Number({0}), std::string_view::npos};
  // The same step is taken for most characters of a long match.
  int32_t last_list = -1;
  uint32_t last_atoms = 0;
  Step step = {};
  while (place < text_.size() && state.list != 0) {
    if (lists_.size() > kListsMax) return {0, std::string_view::npos};  // not followed
    const uint32_t atoms = program_->Atoms(Utf8At(text_, place));
    if (state.list != last_list || atoms != last_atoms) {
      last_list = state.list;
      last_atoms = atoms;
      step = Next(state.list, atoms);
    }
    if (step.match) state.end = place;
    state.list = step.list;
    place += Utf8Length(static_cast<unsigned char>(text_[place]));
  }
  return state;
}

MatchFollower::Step MatchFollower::Next(int32_t list, uint32_t atoms) {
  const auto known = steps_.find({list, atoms});
  if (known != steps_.end()) return known->second;
  using Instruction = MatchProgram::Instruction;
  const std::vector<Instruction>& code = program_->code_;
  std::vector<int32_t> next;
  std::vector<bool> seen(code.size());
  bool match = false;
  const auto has = [&](int32_t atom) { return (atoms >> atom & 1) != 0; };
  // Ways are followed in their order; those behind a match are given up.
  std::vector<int32_t> open(lists_[static_cast<size_t>(list)].rbegin(),
                            lists_[static_cast<size_t>(list)].rend());
  while (!open.empty() && !match) {
    const int32_t at = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    const Instruction& here = code[static_cast<size_t>(at)];
    switch (here.kind) {
      case Instruction::kAtom:
        if (has(here.atom)) next.push_back(at + 1);
        break;
      case Instruction::kSplit:
        open.push_back(here.or_to);
        open.push_back(here.to);
        break;
      case Instruction::kJump:
        open.push_back(here.to);
        break;
      case Instruction::kNextIs:
      case Instruction::kNextIsNot:
        if (has(here.atom) == (here.kind == Instruction::kNextIs)) open.push_back(at + 1);
        break;
      case Instruction::kMatch:
        match = true;
        break;
    }
  }
  const Step step = {Number(std::move(next)), match};
  steps_.emplace(std::make_pair(list, atoms), step);
  return step;
}

}  // namespace megatrain
