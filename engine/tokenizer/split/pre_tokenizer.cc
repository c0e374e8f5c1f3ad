#include "engine/tokenizer/split/pre_tokenizer.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/tokenizer/text/character_maps.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// The places at the end of removed text at which a cut is tried.
constexpr size_t kRemovedPlaces = 8;

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
  bool in_word;
  OpenMatch* matches;  // in which the open piece is
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
  step.single =
      !invert &&
      (single || (step.regex->program() != nullptr && step.regex->program()->is_one_character()));
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
  steps_.emplace_back();
  steps_.back().mark = mark;
  steps_.back().scheme = scheme;
  steps_.back().split = split;
}

void PreTokenizer::AddPrefixSpace() { steps_.emplace_back(); }

void PreTokenizer::AddScripts() {
  steps_.emplace_back();
  steps_.back().scripts = true;
}

absl::Status PreTokenizer::Cut(std::string_view text, OffsetChain* chain, bool begins, bool in_word,
                               bool open, absl::FunctionRef<absl::Status(const Word&)> give) const {
  return From(0, {0, text.size()}, open, {text, chain, begins, in_word, nullptr, give});
}

absl::Status PreTokenizer::GivePlace(size_t place, const Walk& walk) {
  return walk.give({{}, place, walk.chain, /*open=*/true, walk.matches});
}

absl::Status PreTokenizer::From(size_t step, TextPiece piece, bool open, const Walk& walk) const {
  if (piece.first == piece.second) return absl::OkStatus();
  if (step == steps_.size()) {
    return walk.give({walk.text.substr(piece.first, piece.second - piece.first), piece.first,
                      walk.chain, open, walk.matches});
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
    if (open && !gives_matches && status.ok()) status = GivePlace(piece.first + begin, walk);
    done = end;
  };
  size_t known = part.size();
  MT_RETURN_IF_ERROR(open ? step.regex->ForEachSettledMatch(part, match, &known)
                          : step.regex->ForEachMatch(part, match));
  const MatchProgram* const program = known < part.size() ? step.regex->program() : nullptr;
  if (program != nullptr) {
    OpenMatch open_match = {
        MatchFollower(program, walk.text.substr(0, piece.second), piece.first + known),
        walk.matches};
    if (open_match.follower.is_open()) {
      if (gives_gaps) next(done, known, false);
      if (!status.ok()) return status;
      Walk inner = walk;
      inner.matches = &open_match;
      if (gives_matches) {
        return From(step_index + 1, {piece.first + known, piece.second}, open, inner);
      }
      // An attempt at the last character has not matched yet; one a little before it has.
      size_t places[kRemovedPlaces];
      size_t count = 0;
      for (size_t at = piece.second; at > piece.first + known && count < kRemovedPlaces; ++count) {
        places[count] = at = Utf8Before(walk.text, at);
      }
      while (count > 0 && status.ok()) status = GivePlace(places[--count], inner);
      return status;
    }
  }
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
  // Single characters are matches or not wherever the text is cut, and what is behind the last of
  // them is no match. It goes on, joined to nothing before it, or joined already.
  const bool goes_on = open && step.single;
  const bool is_joined =
      goes_on && (step.behavior == SplitBehavior::kContiguous ||
                  (step.behavior == SplitBehavior::kMergedWithNext && done < known));
  if (is_joined && done < known) add(done, known, false);
  std::vector<TextPiece> joined;
  Join(parts, step.behavior, &joined);
  TextPiece rest = {piece.first + done, piece.first + known};
  // The last one may be joined by the text that follows.
  const bool ends = goes_on && !is_joined && step.behavior == SplitBehavior::kMergedWithPrevious &&
                    (done < known || parts.empty() || parts.back().is_match);
  if (open && !ends && !joined.empty()) {
    rest = joined.back();
    joined.pop_back();
  }
  for (const TextPiece& next : joined) {
    MT_RETURN_IF_ERROR(From(step_index + 1, next, /*open=*/false, walk));
  }
  if (!is_joined && (!ends || done == known)) return absl::OkStatus();
  return From(step_index + 1, rest, open, walk);
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
    if (here != run || run == CharacterClasses::kIsolated) {
      if (run != CharacterClasses::kRemoved) {
        MT_RETURN_IF_ERROR(From(step + 1, {begin, at}, /*open=*/false, walk));
      }
      run = here;
      begin = at;
    }
    if (open && here == CharacterClasses::kRemoved) MT_RETURN_IF_ERROR(GivePlace(at, walk));
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
  return From(step + 1, {begin, piece.second}, open, walk);
}

absl::Status PreTokenizer::RewritePiece(size_t step_index, TextPiece piece, bool open,
                                        const Walk& walk) const {
  const Step& step = steps_[step_index];
  const std::string_view part = walk.text.substr(piece.first, piece.second - piece.first);
  const bool first = walk.chain->Original(piece.first) == 0;
  // The rest of a word that was cut is not the beginning of a piece. Nor is that of a text, which
  // is one piece if no step is before.
  const bool may_prepend = walk.begins || !first ||
                           (step_index > 0 && step.scheme == MarkScheme::kAlways && !walk.in_word);
  const std::string_view mark = step.mark.empty() ? std::string_view(" ") : step.mark;
  const bool marked = part.substr(0, mark.size()) == mark || part[0] == ' ';
  const bool prepend =
      may_prepend && !marked &&
      (step.scheme == MarkScheme::kAlways || (step.scheme == MarkScheme::kFirst && first));
  // The rest of a text is taken for the beginning of a piece. So within this one it may only begin
  // where nothing is put before it.
  const size_t piece_begin = walk.chain->Original(piece.first);
  bool given = false;  // a word of the piece
  const auto give_inner = [&](const Word& word) {
    Word inner = word;
    const std::string_view rest = word.text.substr(word.prefix_bytes);
    const bool begins =
        !std::exchange(given, true) && word.chain->Original(word.begin) <= piece_begin;
    inner.may_begin = word.may_begin && (begins || rest.starts_with(mark) || rest.starts_with(' '));
    if (prepend && begins) {
      inner.prefix_bytes = std::min(word.text.size(), word.prefix_bytes + mark.size());
    }
    return walk.give(inner);
  };
  const bool marks_rest = step_index > 0 && step.scheme == MarkScheme::kAlways;
  const absl::FunctionRef<absl::Status(const Word&)> give =
      marks_rest ? absl::FunctionRef<absl::Status(const Word&)>(give_inner) : walk.give;
  if (step.mark.empty() && !prepend) {
    return From(step_index + 1, piece, open,
                {walk.text, walk.chain, walk.begins, walk.in_word, walk.matches, give});
  }
  // The places of open matches are those of the text that is rewritten.
  if (walk.matches != nullptr) return absl::OkStatus();
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
  const Walk inner = {text, &chain, walk.begins, walk.in_word, nullptr, give};
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
