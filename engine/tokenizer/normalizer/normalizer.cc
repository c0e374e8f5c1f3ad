#include "engine/tokenizer/normalizer/normalizer.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/text/character_maps.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// No real tokenizer makes a text grow more: compatibility forms make 18 characters of one at most.
constexpr size_t kGrowthMax = 64;                  // times its bytes
constexpr size_t kGrowthAlways = size_t{1} << 20;  // more bytes, for short texts

// Returns `text` with its white space stripped, or its spaces if `only_spaces`, as a range of
// bytes.
std::pair<size_t, size_t> Strip(std::string_view text, bool left, bool right, bool only_spaces) {
  const auto strips = [&](size_t at) {
    return only_spaces ? text[at] == ' ' : IsWhiteSpace(Utf8At(text, at));
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && strips(begin)) {
    begin += Utf8Length(static_cast<unsigned char>(text[begin]));
  }
  while (right && end > begin) {
    const size_t before = Utf8Before(text, end);
    if (!strips(before)) break;
    end = before;
  }
  return {begin, end};
}

// If `pattern` is one character or class with a quantifier behind it or none, and does not match
// the empty text, returns that character or class. Returns "" otherwise.
std::string_view RepeatedAtom(std::string_view pattern) {
  if (pattern.empty()) return {};
  size_t length = Utf8Length(static_cast<unsigned char>(pattern[0]));
  if (pattern[0] == '\\') {
    length = 2;
    if (pattern.size() < 2 ||
        std::string_view("snrtd").find(pattern[1]) == std::string_view::npos) {
      return {};
    }
  } else if (pattern[0] == '[') {
    length = pattern.find(']');
    if (length == std::string_view::npos || pattern.find('[', 1) < length || length < 2) return {};
    ++length;
  } else if (std::string_view("(){}*+?.^$|]").find(pattern[0]) != std::string_view::npos) {
    return {};
  }
  const std::string_view rest = pattern.substr(length);
  const bool simple = rest.empty() || rest == "+";
  const bool interval = rest.size() > 2 && rest[0] == '{' && rest[1] >= '1' && rest[1] <= '9' &&
                        rest.find('}') == rest.size() - 1;
  return simple || interval ? pattern.substr(0, length) : std::string_view();
}

bool Matches(const SplitRegex& regex, char32_t c) {
  std::string text;
  AppendUtf8(c, &text);
  bool found = false;
  const absl::Status status = regex.ForEachMatch(text, [&](size_t, size_t) { found = true; });
  return found || !status.ok();
}

bool Holds(std::string_view text, char32_t c) {
  std::string character;
  AppendUtf8(c, &character);
  return text.find(character) != std::string_view::npos;
}

// Does as text.find(part, from), in a time that does not grow with the product of the lengths.
size_t Find(std::string_view text, std::string_view part, size_t from) {
  const std::string_view rest = text.substr(from);
  const void* const found = memmem(rest.data(), rest.size(), part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace

Normalizer::Step* Normalizer::Add(Kind kind) {
  steps_.emplace_back();
  steps_.back().kind = kind;
  return &steps_.back();
}

void Normalizer::AddForm(UnicodeForm form) { Add(Kind::kForm)->form = form; }
void Normalizer::AddLowercase() { Add(Kind::kLowercase); }
void Normalizer::AddStripAccents() { Add(Kind::kStripAccents); }
void Normalizer::AddNmt() { Add(Kind::kNmt); }

void Normalizer::AddBert(const BertNormalization& bert) {
  if (bert.clean_text) Add(Kind::kCleanText);
  if (bert.handle_chinese_chars) Add(Kind::kIdeographs);
  if (bert.strip_accents) {
    AddForm(UnicodeForm::kNfd);
    Add(Kind::kNonspacingMarks);
  }
  if (bert.lowercase) AddLowercase();
}

void Normalizer::AddStrip(bool left, bool right) {
  Step* const step = Add(Kind::kStrip);
  step->left = left;
  step->right = right;
}

void Normalizer::AddPrepend(std::string_view text) { Add(Kind::kPrepend)->to = text; }

void Normalizer::AddReplace(std::string_view from, std::string_view to) {
  Step* const step = Add(Kind::kReplace);
  step->from = from;
  step->to = to;
}

void Normalizer::AddReplace(std::unique_ptr<SplitRegex> from, std::string_view to) {
  if (from->pattern() == kOuterSpaces && to.empty()) {
    AddStrip(/*left=*/true, /*right=*/true);
    steps_.back().from = " ";
    return;
  }
  if (from->pattern() == kFirstMark) {
    Step* const first = Add(Kind::kReplaceFirst);
    first->from = kFirstMark.substr(2);
    first->to = to;
    return;
  }
  Step* const step = Add(Kind::kReplaceRegex);
  step->regex = std::move(from);
  step->to = to;
  const std::string_view atom = RepeatedAtom(step->regex->pattern());
  if (atom.empty()) return;
  auto compiled = SplitRegex::Compile(atom);
  if (compiled.ok()) step->atom = *std::move(compiled);
}

void Normalizer::AddPrecompiled(PrecompiledCharsmap charsmap) {
  Add(Kind::kPrecompiled)->charsmap = std::make_unique<PrecompiledCharsmap>(std::move(charsmap));
}

absl::Status Normalizer::Apply(const Step& step, std::string_view text, bool begins, RunWriter* out,
                               bool* changed) const {
  *changed = true;
  switch (step.kind) {
    case Kind::kForm:
      return ApplyForm(step.form, text, out, changed);
    case Kind::kLowercase:
      MapLowercase(text, out);
      break;
    case Kind::kStripAccents:
      RemoveMarks(text, out);
      break;
    case Kind::kNonspacingMarks:
      RemoveNonspacingMarks(text, out);
      break;
    case Kind::kNmt:
      MapNmt(text, out);
      break;
    case Kind::kCleanText:
      CleanText(text, out);
      break;
    case Kind::kIdeographs:
      SpaceIdeographs(text, out);
      break;
    case Kind::kPrecompiled:
      step.charsmap->Apply(text, out);
      break;
    case Kind::kStrip: {
      const auto [begin, end] =
          Strip(text, step.left && begins, step.right, /*only_spaces=*/!step.from.empty());
      *changed = begin > 0 || end < text.size();
      if (*changed) out->Keep(text, begin, end);
      break;
    }
    case Kind::kPrepend:
    case Kind::kReplaceFirst:
      *changed = begins && !text.empty() && text.starts_with(step.from);
      if (*changed) {
        out->Put(step.to, 0);
        out->Keep(text, step.from.size(), text.size());
      }
      break;
    case Kind::kReplace: {
      size_t done = 0;
      for (size_t at = Find(text, step.from, 0); at != std::string_view::npos;
           at = Find(text, step.from, done)) {
        out->Keep(text, done, at);
        done = at + step.from.size();
        out->Put(step.to, Utf8Before(text, done));
      }
      *changed = done > 0;
      if (*changed) out->Keep(text, done, text.size());
      break;
    }
    case Kind::kReplaceRegex: {
      size_t done = 0;
      bool found = false;
      MT_RETURN_IF_ERROR(step.regex->ForEachMatch(text, [&](size_t begin, size_t end) {
        out->Keep(text, done, begin);
        out->Put(step.to, begin < end ? Utf8Before(text, end) : begin);
        done = end;
        found = true;
      }));
      *changed = found;
      if (found) out->Keep(text, done, text.size());
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status Normalizer::Normalize(std::string_view text, bool begins, bool with_runs,
                                   NormalizedText* out) const {
  return RunSteps(0, steps_.size(), /*tables=*/true, text, begins, with_runs, out);
}

absl::Status Normalizer::RunSteps(size_t first, size_t last, bool tables, std::string_view text,
                                  bool begins, bool with_runs, NormalizedText* out) const {
  out->text = text;
  out->runs.clear();
  const size_t bytes_max = std::min<size_t>(kGrowthMax * text.size() + kGrowthAlways,
                                            std::numeric_limits<uint32_t>::max());
  for (size_t i = first; i < last;) {
    const Step& step = steps_[i];
    // A step reads `text` (the original or `buffer`) and writes `other`.
    RunWriter writer(&out->other, with_runs ? &out->other_runs : nullptr, bytes_max);
    bool changed = false;
    if (tables && step.table != nullptr) {
      MT_RETURN_IF_ERROR(ApplyTable(i, out->text, with_runs, &writer, &changed));
      i = step.table_end;
    } else {
      MT_RETURN_IF_ERROR(Apply(step, out->text, begins, &writer, &changed));
      ++i;
    }
    if (!changed) continue;
    if (out->other.size() > bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat("a text of ", text.size(),
                                                     " bytes grows to more than ", bytes_max,
                                                     " bytes when the tokenizer normalizes it"));
    }
    if (with_runs) {
      ComposeRuns(out->runs, &out->other_runs);
      out->runs.swap(out->other_runs);
    }
    out->buffer.swap(out->other);
    out->text = out->buffer;
    if (out->text.empty()) break;
  }
  return absl::OkStatus();
}

bool Normalizer::LooksAround(const Step& step) {
  return step.kind == Kind::kForm || step.kind == Kind::kPrecompiled || step.kind == Kind::kStrip ||
         step.kind == Kind::kReplaceRegex || (step.kind == Kind::kReplace && step.from.size() > 1);
}

bool Normalizer::StepCuts(const Step& step, const Neighbours& around, bool is_last) {
  const auto [far_before, before, after, far_after] = around;
  switch (step.kind) {
    case Kind::kForm:
      return FormBeginsAt(step.form, before) && FormBeginsAt(step.form, after) &&
             (far_after == 0 ? is_last : FormBeginsAt(step.form, far_after));
    case Kind::kPrecompiled:
      return (far_before == 0 || ClusterEndsBetween(far_before, before)) &&
             ClusterEndsBetween(before, after) &&
             (far_after == 0 ? is_last : ClusterEndsBetween(after, far_after));
    case Kind::kStrip:
      return step.from.empty() ? !IsWhiteSpace(before) : before != ' ';
    case Kind::kReplace: {
      const bool single = Utf8Length(static_cast<unsigned char>(step.from[0])) == step.from.size();
      return single || (!Holds(step.from, before) && !Holds(step.from, after));
    }
    case Kind::kReplaceRegex:
      return step.atom != nullptr && !Matches(*step.atom, before) &&
             (is_last || !Matches(*step.atom, after));
    default:
      return true;
  }
}

Normalizer::Neighbours Normalizer::WithSpaces(const Neighbours& around) {
  Neighbours with = around;
  if (IsIdeograph(around.far_before)) with.far_before = ' ';
  if (IsIdeograph(around.before)) {
    with.far_before = around.before;
    with.before = ' ';
  }
  if (IsIdeograph(around.far_after)) with.far_after = ' ';
  if (IsIdeograph(around.after)) {
    with.far_after = around.after;
    with.after = ' ';
  }
  return with;
}

std::optional<char32_t> Normalizer::Single(const Step& step, char32_t c) const {
  if (c == 0 || step.kind == Kind::kStrip) return c;
  std::string text, normalized;
  AppendUtf8(c, &text);
  RunWriter writer(&normalized, nullptr);
  bool changed = false;
  if (!Apply(step, text, /*begins=*/false, &writer, &changed).ok()) return std::nullopt;
  if (!changed || normalized == text) return c;
  if (normalized.empty() ||
      Utf8Length(static_cast<unsigned char>(normalized[0])) != normalized.size()) {
    return std::nullopt;
  }
  return Utf8At(normalized, 0);
}

bool Normalizer::CutsAt(std::string_view text, size_t offset) const {
  if (steps_.empty()) return true;
  if (offset == 0 || offset >= text.size()) return false;
  const size_t before = Utf8Before(text, offset);
  const size_t next = offset + Utf8Length(static_cast<unsigned char>(text[offset]));
  Neighbours around = {before == 0 ? 0 : Utf8At(text, Utf8Before(text, before)),
                       Utf8At(text, before), Utf8At(text, offset),
                       next >= text.size() ? 0 : Utf8At(text, next)};
  size_t last = steps_.size();  // the steps from here on do not look around
  while (last > 0 && !LooksAround(steps_[last - 1])) --last;
  // A later step sees what the steps before make of the neighbours, if that is one character each.
  bool single = true;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    // These look at the beginning, which must be before the place.
    const bool begins = step.kind == Kind::kPrepend || step.kind == Kind::kReplaceFirst;
    if ((begins || LooksAround(step)) && (!single || !StepCuts(step, around, i + 1 >= last))) {
      return false;
    }
    if (step.kind == Kind::kIdeographs) {
      around = WithSpaces(around);
      continue;
    }
    for (char32_t* const c :
         {&around.far_before, &around.before, &around.after, &around.far_after}) {
      if (i + 1 == steps_.size() || !single) break;
      const std::optional<char32_t> made = Single(step, *c);
      single = made.has_value();
      *c = made.value_or(0);
    }
  }
  return true;
}

}  // namespace megatrain
