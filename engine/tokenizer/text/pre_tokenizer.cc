#include "engine/tokenizer/text/pre_tokenizer.h"

#include <algorithm>

#include "engine/base/status.h"

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

absl::Status PreTokenizer::AddSplit(std::string_view regex, SplitBehavior behavior, bool invert) {
  MT_ASSIGN_OR_RETURN(auto compiled, SplitRegex::Compile(regex));
  steps_.push_back({std::move(compiled), behavior, invert});
  return absl::OkStatus();
}

absl::Status PreTokenizer::CutFrom(size_t step_index, std::string_view text, TextPiece piece,
                                   absl::FunctionRef<void(size_t, size_t)> give) const {
  if (piece.first == piece.second) return absl::OkStatus();
  if (step_index == steps_.size()) {
    give(piece.first, piece.second);
    return absl::OkStatus();
  }
  const Step& step = steps_[step_index];
  const std::string_view part = text.substr(piece.first, piece.second - piece.first);
  size_t done = 0;
  if (step.behavior == SplitBehavior::kIsolated) {  // by far the most common: no list of parts
    absl::Status status;
    const auto next = [&](size_t begin, size_t end) {
      status.Update(CutFrom(step_index + 1, text, {piece.first + begin, piece.first + end}, give));
    };
    MT_RETURN_IF_ERROR(step.regex->ForEachMatch(part, [&](size_t begin, size_t end) {
      next(done, begin);
      next(begin, end);
      done = end;
    }));
    next(done, part.size());
    return status;
  }
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    parts.push_back({{piece.first + begin, piece.first + end}, is_match != step.invert});
  };
  MT_RETURN_IF_ERROR(step.regex->ForEachMatch(part, [&](size_t begin, size_t end) {
    if (done != begin) add(done, begin, false);
    add(begin, end, true);
    done = end;
  }));
  if (done != part.size()) add(done, part.size(), false);
  std::vector<TextPiece> joined;
  Join(parts, step.behavior, &joined);
  for (const TextPiece& next : joined) {
    MT_RETURN_IF_ERROR(CutFrom(step_index + 1, text, next, give));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::Cut(std::string_view text,
                               absl::FunctionRef<void(size_t, size_t)> give) const {
  return CutFrom(0, text, {0, text.size()}, give);
}

}  // namespace megatrain
