#include "engine/tokenizer/text/pre_tokenizer.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/tokenizer/text/character_maps.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

struct Part {
  TextPiece piece;
  bool is_match;
};

// Joins neighbours as `behavior` says. Removed matches are left out.
void Join(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<TextPiece>* out) {
  const auto give = [out](TextPiece piece) {
    if (piece.first < piece.second) out->push_back(piece);
  };
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) give(part.piece);
      return;
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) give(part.piece);
      }
      return;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious: {
      std::vector<TextPiece> joined;
      bool previous_match = false;
      for (const Part& part : parts) {
        const bool join = behavior == SplitBehavior::kContiguous ? part.is_match == previous_match
                                                                 : part.is_match && !previous_match;
        if (join && !joined.empty()) {
          joined.back().second = part.piece.second;
        } else {
          joined.push_back(part.piece);
        }
        previous_match = part.is_match;
      }
      for (const TextPiece& piece : joined) give(piece);
      return;
    }
    case SplitBehavior::kMergedWithNext: {
      std::vector<TextPiece> joined;  // from right to left
      bool previous_match = false;
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !previous_match && !joined.empty()) {
          joined.back().first = part->piece.first;
        } else {
          joined.push_back(part->piece);
        }
        previous_match = part->is_match;
      }
      for (auto piece = joined.rbegin(); piece != joined.rend(); ++piece) give(*piece);
      return;
    }
  }
}

}  // namespace

struct PreTokenizer::Walk {
  std::string_view text;
  OffsetChain* chain;
  bool begins;
  absl::FunctionRef<absl::Status(const Word&)> give;
};

void PreTokenizer::AddSplit(std::unique_ptr<SplitRegex> regex, SplitBehavior behavior, bool invert,
                            bool single) {
  const bool merges =
      behavior == SplitBehavior::kMergedWithPrevious || behavior == SplitBehavior::kMergedWithNext;
  if (single && !invert && !merges) {
    CharacterClasses classes;
    const CharacterClasses::Class match =
        behavior == SplitBehavior::kRemoved    ? CharacterClasses::kRemoved
        : behavior == SplitBehavior::kIsolated ? CharacterClasses::kIsolated
                                               : CharacterClasses::kRun + 1;
    if (classes.Assign(*regex, match).ok()) return AddClasses(std::move(classes));
  }
  steps_.emplace_back();
  Step& step = steps_.back();
  step.regex = std::move(regex);
  step.behavior = behavior;
  step.invert = invert;
  // What follows is joined to nothing, or to its neighbour on the left only.
  step.single = single && !invert && behavior != SplitBehavior::kMergedWithNext &&
                behavior != SplitBehavior::kContiguous;
  cuts_words_ = cuts_words_ && step.single;
}

void PreTokenizer::AddClasses(CharacterClasses classes) {
  if (!steps_.empty() && steps_.back().classes != nullptr &&
      steps_.back().classes->Append(classes)) {
    return;
  }
  steps_.emplace_back();
  steps_.back().classes = std::make_unique<CharacterClasses>(std::move(classes));
}

void PreTokenizer::AddMetaspace(std::string_view mark, MarkScheme scheme, bool split) {
  needs_offsets_ = needs_offsets_ || !steps_.empty() || scheme == MarkScheme::kFirst;
  // Behind another step, the rest of a word that was cut would look like a piece of its own.
  cuts_words_ = cuts_words_ && steps_.empty();
  steps_.emplace_back();
  steps_.back().mark = mark;
  steps_.back().scheme = scheme;
  steps_.back().split = split;
}

void PreTokenizer::AddPrefixSpace() {
  cuts_words_ = cuts_words_ && steps_.empty();
  steps_.emplace_back();
}

void PreTokenizer::AddScripts() {
  cuts_words_ = false;
  steps_.emplace_back();
  steps_.back().scripts = true;
}

absl::Status PreTokenizer::Cut(std::string_view text, OffsetChain* chain, bool begins, bool open,
                               absl::FunctionRef<absl::Status(const Word&)> give) const {
  return From(0, {0, text.size()}, open, {text, chain, begins, give});
}

absl::Status PreTokenizer::From(size_t step, TextPiece piece, bool open, const Walk& walk) const {
  if (piece.first == piece.second) return absl::OkStatus();
  if (step == steps_.size()) {
    if (open && !cuts_words_) return absl::OkStatus();
    return walk.give(
        {walk.text.substr(piece.first, piece.second - piece.first), piece.first, walk.chain, open});
  }
  if (steps_[step].classes != nullptr) return ClassPieces(step, piece, open, walk);
  if (steps_[step].scripts) return ScriptPieces(step, piece, open, walk);
  if (steps_[step].regex == nullptr) return RewritePiece(step, piece, open, walk);
  const SplitBehavior behavior = steps_[step].behavior;
  const bool joins = behavior != SplitBehavior::kIsolated && behavior != SplitBehavior::kRemoved;
  return joins ? JoinedPieces(step, piece, open, walk) : SplitPiece(step, piece, open, walk);
}

// kIsolated and kRemoved, by far the most common: no list of parts.
absl::Status PreTokenizer::SplitPiece(size_t step_index, TextPiece piece, bool open,
                                      const Walk& walk) const {
  const Step& step = steps_[step_index];
  const std::string_view part = walk.text.substr(piece.first, piece.second - piece.first);
  const bool gives_matches = step.behavior == SplitBehavior::kIsolated || step.invert;
  const bool gives_gaps = step.behavior == SplitBehavior::kIsolated || !step.invert;
  absl::Status status;
  size_t done = 0;
  const auto next = [&](size_t begin, size_t end, bool goes_on) {
    if (status.ok()) {
      status = From(step_index + 1, {piece.first + begin, piece.first + end}, goes_on, walk);
    }
  };
  const auto match = [&](size_t begin, size_t end) {
    if (gives_gaps) next(done, begin, false);
    if (gives_matches) next(begin, end, false);
    done = end;
  };
  size_t known = part.size();
  MT_RETURN_IF_ERROR(open ? step.regex->ForEachSettledMatch(part, match, &known)
                          : step.regex->ForEachMatch(part, match));
  if (gives_gaps && done < known) next(done, known, open);
  return status;
}

absl::Status PreTokenizer::JoinedPieces(size_t step_index, TextPiece piece, bool open,
                                        const Walk& walk) const {
  const Step& step = steps_[step_index];
  const std::string_view part = walk.text.substr(piece.first, piece.second - piece.first);
  std::vector<Part> parts;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    parts.push_back({{piece.first + begin, piece.first + end}, is_match != step.invert});
  };
  const auto match = [&](size_t begin, size_t end) {
    if (done != begin) add(done, begin, false);
    add(begin, end, true);
    done = end;
  };
  size_t known = part.size();
  MT_RETURN_IF_ERROR(open ? step.regex->ForEachSettledMatch(part, match, &known)
                          : step.regex->ForEachMatch(part, match));
  if (!open && done != part.size()) add(done, part.size(), false);
  std::vector<TextPiece> joined;
  Join(parts, step.behavior, &joined);
  // What follows may be joined to the last one. Not so with single characters: what is behind the
  // last match is no match, and is a piece of its own.
  const bool ends = step.single && (done < known || parts.empty() || parts.back().is_match);
  if (open && !ends && !joined.empty()) joined.pop_back();
  for (const TextPiece& next : joined) {
    MT_RETURN_IF_ERROR(From(step_index + 1, next, /*open=*/false, walk));
  }
  if (!open || !ends || done == known) return absl::OkStatus();
  return From(step_index + 1, {piece.first + done, piece.first + known}, open, walk);
}

bool PreTokenizer::MayBegin(char32_t c) const {
  return ScriptOf(c) != kAnyScript ||
         std::none_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.scripts; });
}

absl::Status PreTokenizer::ClassPieces(size_t step, TextPiece piece, bool open,
                                       const Walk& walk) const {
  const CharacterClasses& classes = *steps_[step].classes;
  CharacterClasses::Class run = CharacterClasses::kRemoved;  // of the piece that begins at `begin`
  size_t begin = piece.first;
  for (size_t at = piece.first; at < piece.second;
       at += Utf8Length(static_cast<unsigned char>(walk.text[at]))) {
    const CharacterClasses::Class here = classes.At(walk.text, at);
    if (here == run && run != CharacterClasses::kIsolated) continue;
    if (run != CharacterClasses::kRemoved) {
      MT_RETURN_IF_ERROR(From(step + 1, {begin, at}, /*open=*/false, walk));
    }
    run = here;
    begin = at;
  }
  if (run == CharacterClasses::kRemoved) return absl::OkStatus();
  return From(step + 1, {begin, piece.second}, open && run != CharacterClasses::kIsolated, walk);
}

absl::Status PreTokenizer::ScriptPieces(size_t step, TextPiece piece, bool open,
                                        const Walk& walk) const {
  int script = kAnyScript;  // of the piece that begins at `begin`
  size_t begin = piece.second;
  for (size_t at = piece.first; at < piece.second;
       at += Utf8Length(static_cast<unsigned char>(walk.text[at]))) {
    const int here = ScriptOf(Utf8At(walk.text, at));
    if (here == kAnyScript || here == script) continue;
    if (begin < at) MT_RETURN_IF_ERROR(From(step + 1, {begin, at}, /*open=*/false, walk));
    begin = at;
    script = here;
  }
  // The rest of a piece that was cut could begin with a character of any script, and lose it.
  return open ? absl::OkStatus() : From(step + 1, {begin, piece.second}, /*open=*/false, walk);
}

absl::Status PreTokenizer::RewritePiece(size_t step_index, TextPiece piece, bool open,
                                        const Walk& walk) const {
  const Step& step = steps_[step_index];
  const std::string_view part = walk.text.substr(piece.first, piece.second - piece.first);
  const bool first = walk.chain->Original(piece.first) == 0;
  // Behind other steps, a text is cut between pieces only. Else it may be cut within one, and the
  // rest is not the beginning of a piece.
  const bool may_prepend =
      walk.begins || !first || (step_index > 0 && step.scheme == MarkScheme::kAlways);
  const std::string_view mark = step.mark.empty() ? std::string_view(" ") : step.mark;
  const bool marked = part.substr(0, mark.size()) == mark || part[0] == ' ';
  const bool prepend =
      may_prepend && !marked &&
      (step.scheme == MarkScheme::kAlways || (step.scheme == MarkScheme::kFirst && first));
  if (step.mark.empty() && !prepend) return From(step_index + 1, piece, open, walk);
  std::string text;
  text.reserve(part.size() + part.size() / 2 + mark.size());
  OffsetRuns runs;
  RunWriter writer(&text, &runs);
  if (prepend) writer.Put(mark, 0);
  size_t kept = 0;
  if (!step.mark.empty()) {
    for (size_t at = part.find(' '); at != std::string_view::npos; at = part.find(' ', kept)) {
      writer.Keep(part, kept, at);
      writer.Put(mark, at);
      kept = at + 1;
    }
  }
  writer.Keep(part, kept, part.size());
  OffsetChain outer = *walk.chain;
  outer.base += piece.first;
  OffsetChain chain = {0, &runs, &outer, 0};
  const Walk inner = {text, &chain, walk.begins, walk.give};
  size_t begin = 0;
  while (step.split) {  // MergedWithNext: a piece begins at every mark
    const size_t end = text.find(mark, begin + 1);
    if (end == std::string::npos) break;
    MT_RETURN_IF_ERROR(From(step_index + 1, {begin, end}, /*open=*/false, inner));
    begin = end;
  }
  return From(step_index + 1, {begin, text.size()}, open, inner);
}

}  // namespace megatrain
