// The tables of Normalizer: which steps they stand for, and their use.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/tokenizer/normalizer/normalizer.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {

size_t Normalizer::TableEnd(size_t first) const {
  bool looks = false;       // a step looks at neighbours
  bool decomposes = false;  // that step leaves the first character's form in front
  for (size_t i = first; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    switch (step.kind) {
      case Kind::kForm:
        if (looks) return i;
        looks = true;
        decomposes = step.form == UnicodeForm::kNfd || step.form == UnicodeForm::kNfkd;
        break;
      case Kind::kPrecompiled:
        if (looks && !decomposes) return i;
        looks = true;
        decomposes = false;
        break;
      case Kind::kStrip:
      case Kind::kPrepend:
      case Kind::kReplaceFirst:
      case Kind::kReplace:
      case Kind::kReplaceRegex:
        return i;
      default:
        break;
    }
  }
  return steps_.size();
}

bool Normalizer::FormOf(size_t first, size_t last, std::string_view character,
                        std::string* form) const {
  // A cluster ends on both sides of these, if the neighbour is one of them too.
  const auto stands_alone = [](char32_t c) { return c != '\r' && ClusterEndsBetween(c, c); };
  *form = character;
  std::string next;
  for (size_t i = first; i < last; ++i) {
    const Step& step = steps_[i];
    const bool looks = step.kind == Kind::kForm || step.kind == Kind::kPrecompiled;
    if (looks && form->empty()) return false;
    if (step.kind == Kind::kForm && !FormBeginsAt(step.form, Utf8At(*form, 0))) return false;
    if (step.kind == Kind::kPrecompiled &&
        !(stands_alone(Utf8At(*form, 0)) &&
          stands_alone(Utf8At(*form, Utf8Before(*form, form->size()))))) {
      return false;
    }
    RunWriter writer(&next, nullptr);
    bool changed = false;
    if (!Apply(step, *form, /*begins=*/false, &writer, &changed).ok()) return false;
    if (changed) form->swap(next);
  }
  return true;
}

void Normalizer::Tabulate() {
  for (size_t first = 0; first < steps_.size();) {
    const size_t last = TableEnd(first);
    // Most text is NFC, which ICU sees at once.
    const bool only_nfc = last == first + 1 && steps_[first].kind == Kind::kForm &&
                          steps_[first].form == UnicodeForm::kNfc;
    if (last > first && !only_nfc) {
      steps_[first].table =
          std::make_unique<CharacterTable>([&](std::string_view character, std::string* form) {
            return FormOf(first, last, character, form);
          });
      steps_[first].table_end = last;
    }
    first = std::max(last, first + 1);
  }
}

absl::Status Normalizer::ApplyTable(size_t first, std::string_view text, bool with_runs,
                                    RunWriter* out, bool* changed) const {
  const CharacterTable& table = *steps_[first].table;
  const auto entry = [&](size_t at) {
    return at < text.size() ? table.At(text, at) : CharacterTable::kSame;
  };
  const auto end_of = [&](size_t at) {
    return at + Utf8Length(static_cast<unsigned char>(text[at]));
  };
  NormalizedText part;
  size_t kept = 0;  // text from here on is copied
  CharacterTable::Entry here = entry(0);
  for (size_t at = 0; at < text.size();) {
    size_t end = end_of(at);
    CharacterTable::Entry after = entry(end);
    if (here != CharacterTable::kContext && after != CharacterTable::kContext) {
      if (here != CharacterTable::kSame) {
        out->Keep(text, kept, at);
        out->Put(table.Form(here), at);
        kept = end;
      }
      at = end;
      here = after;
      continue;
    }
    // The steps can be applied separately before and behind a place between two characters that
    // have a form of their own.
    while (end < text.size() &&
           (here == CharacterTable::kContext || after == CharacterTable::kContext)) {
      here = after;
      end = end_of(end);
      after = entry(end);
    }
    const std::string_view stretch = text.substr(at, end - at);
    MT_RETURN_IF_ERROR(RunSteps(first, steps_[first].table_end, /*tables=*/false, stretch,
                                /*begins=*/false, with_runs, &part));
    if (part.text.data() != stretch.data()) {
      out->Keep(text, kept, at);
      kept = end;
      if (!with_runs) out->Put(part.text, at);
      const size_t bytes = part.text.size();  // a run may begin behind the text
      for (size_t i = 0; i < part.runs.size() && part.runs[i].begin < bytes; ++i) {
        const OffsetRun& run = part.runs[i];
        const size_t run_end = i + 1 < part.runs.size() ? part.runs[i + 1].begin : bytes;
        const size_t size = std::min(run_end, bytes) - run.begin;
        if (run.flat) {
          out->Put(part.text.substr(run.begin, size), at + run.original);
        } else {
          out->Keep(text, at + run.original, at + run.original + size);
        }
      }
    }
    at = end;
    here = after;
  }
  *changed = kept > 0;
  if (*changed) out->Keep(text, kept, text.size());
  return absl::OkStatus();
}

}  // namespace megatrain
