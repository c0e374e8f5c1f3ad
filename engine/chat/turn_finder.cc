#include "engine/chat/turn_finder.h"

#include <algorithm>
#include <vector>

#include "engine/chat/jinja/python/unicode_text.h"

namespace megatrain {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The part of a message that all programs write as it is: behind its reasoning, which many rewrite.
std::string_view Answer(std::string_view message) {
  constexpr std::string_view kThinkEnd = "</think>";
  const size_t end = message.rfind(kThinkEnd);
  if (end != std::string_view::npos) message.remove_prefix(end + kThinkEnd.size());
  return Stripped(message);
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const size_t size = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(size), b.begin()).first -
      a.begin());
}

// The length of the longest end of `text` that `start_of` begins with, by Knuth, Morris and Pratt's
// failure function of `start_of`.
size_t LongestOverlap(std::string_view text, std::string_view start_of) {
  start_of = start_of.substr(0, text.size());
  std::vector<size_t> failure(start_of.size(), 0);
  size_t matched = 0;
  for (size_t i = 1; i < start_of.size(); ++i) {
    while (matched > 0 && start_of[i] != start_of[matched]) matched = failure[matched - 1];
    if (start_of[i] == start_of[matched]) ++matched;
    failure[i] = matched;
  }
  matched = 0;
  for (const char c : text) {
    while (matched > 0 && (matched == start_of.size() || c != start_of[matched])) {
      matched = failure[matched - 1];
    }
    if (matched < start_of.size() && c == start_of[matched]) ++matched;
  }
  return matched;
}

// Returns T without the piece [begin, end) of P, if it ends with that behind `text_end`. The piece
// may begin a little earlier, where what stands before it ends as it does: with "<", for example.
std::string_view WithoutMovedPiece(std::string_view prompt, size_t begin, size_t end,
                                   std::string_view turn, size_t text_end) {
  constexpr size_t kSharedMax = 64;
  for (size_t shared = 0; shared <= std::min(begin, kSharedMax); ++shared) {
    const std::string_view piece = prompt.substr(begin - shared, end - begin);
    if (!Stripped(piece).empty() && EndsWith(turn.substr(text_end), piece)) {
      return turn.substr(0, turn.size() - piece.size());
    }
    if (shared == begin || prompt[begin - shared - 1] != prompt[end - shared - 1]) break;
  }
  return turn;
}

// Returns the end of the whole mark, such as <|end|>, that stands first in [begin, end) of `turn`,
// or `begin` if none does. White space may stand before it.
size_t EndOfSharedMark(std::string_view turn, size_t begin, size_t end) {
  const std::string_view shared = turn.substr(begin, end - begin);
  const size_t open = shared.find_first_not_of(kSpace);
  if (open == std::string_view::npos || (shared[open] != '<' && shared[open] != '[')) return begin;
  const size_t close = shared.find(shared[open] == '<' ? '>' : ']', open);
  return close == std::string_view::npos ? begin : begin + close + 1;
}

// Leaves out the white space behind the end-of-turn mark.
TextRange WithoutSpace(std::string_view text, TextRange range, std::string_view answer) {
  const std::string_view turn = text.substr(range.first, range.second - range.first);
  const size_t last = turn.find_last_not_of(kSpace);
  if (last == std::string_view::npos) return range;
  if (!answer.empty() && EndsWith(turn.substr(0, last + 1), answer)) return range;
  return {range.first, range.first + last + 1};
}

}  // namespace

std::optional<size_t> TurnFinder::Begin(std::string_view prompt, std::string_view message,
                                        std::string_view& turn) {
  const std::string_view answer = Answer(message);
  const size_t common = CommonPrefix(prompt, turn);
  if (common == prompt.size()) return common;
  const size_t rest = LongestOverlap(prompt.substr(common), turn.substr(common));
  if (!Stripped(turn.substr(common, rest)).empty()) {
    const size_t begin = common + rest;
    const size_t text_at = python::FindFirst(turn.substr(begin), answer);
    const size_t text_end =
        text_at == std::string_view::npos ? begin : begin + text_at + answer.size();
    turn = WithoutMovedPiece(prompt, common, prompt.size() - rest, turn, text_end);
    return begin;
  }
  // A piece at the end of P is missing. The message may begin with the same characters as that.
  if (answer.empty()) return std::nullopt;
  const size_t least = common - std::min(common, answer.size() - 1);
  const size_t text_at =
      python::FindLast(turn.substr(least, common - least + answer.size()), answer);
  if (text_at == std::string_view::npos) return std::nullopt;
  return least + text_at;
}

std::optional<size_t> TurnFinder::BeginMarked(std::string_view prompt, std::string_view turn,
                                              std::string_view marked_turn,
                                              std::string_view marker) {
  const std::string_view before = marked_turn.substr(0, marked_turn.find(marker));
  if (before.size() == marked_turn.size() || !StartsWith(turn, before)) return std::nullopt;
  const size_t common = CommonPrefix(prompt, before);
  const std::string_view rest = before.substr(common);
  if (!rest.empty() && !EndsWith(rest, prompt.substr(common))) return std::nullopt;
  return before.size();
}

std::optional<TextRange> TurnFinder::FindExact(std::string_view whole, std::string_view prompt,
                                               std::string_view turn, std::string_view message) {
  if (!StartsWith(turn, prompt) || !StartsWith(whole, turn)) return std::nullopt;
  return WithoutSpace(whole, {prompt.size(), turn.size()}, Answer(message));
}

std::optional<TextRange> TurnFinder::FindMarked(std::string_view whole, std::string_view prompt,
                                                std::string_view marked_whole,
                                                std::string_view marked_turn,
                                                std::string_view message, std::string_view marker) {
  const size_t at = marked_whole.find(marker);
  const size_t turn_at = marked_turn.find(marker);
  if (at == std::string_view::npos || turn_at == std::string_view::npos ||
      marked_whole.rfind(marker) != at || marked_turn.rfind(marker) != turn_at) {
    return std::nullopt;
  }
  const std::string_view before = marked_whole.substr(0, at);
  const std::string_view behind = marked_whole.substr(at + marker.size());
  if (!StartsWith(whole, before) || !EndsWith(whole, behind) ||
      before.size() + behind.size() > whole.size()) {
    return std::nullopt;
  }
  // White space between the prompt and the message belongs to the turn.
  const size_t last = before.find_last_not_of(kSpace);
  const size_t prompt_last = prompt.find_last_not_of(kSpace);
  if (last == std::string_view::npos || prompt_last == std::string_view::npos) return std::nullopt;
  const std::string_view prompt_end = prompt.substr(prompt_last);
  if (!StartsWith(before.substr(last), prompt_end)) return std::nullopt;
  const size_t begin = last + prompt_end.size();
  // The end-of-turn mark, as far as it follows here too.
  const std::string_view mark = marked_turn.substr(turn_at + marker.size());
  const size_t text_end = whole.size() - behind.size();
  const size_t end =
      text_end + (StartsWith(behind, mark) ? mark.size()
                                           : EndOfSharedMark(mark, 0, CommonPrefix(mark, behind)));
  return WithoutSpace(whole, {begin, end}, Answer(message));
}

// The turn begins at `turn_begin` of T. T from `from_turn` on is compared with F from `from_whole`
// on. Returns the range of F with the white space at its end.
std::optional<TextRange> TurnFinder::Place(size_t turn_begin, std::string_view turn,
                                           size_t from_turn, size_t from_whole,
                                           std::string_view answer) const {
  if (turn_begin < from_turn) return std::nullopt;
  const size_t begin = turn_begin - from_turn;
  turn.remove_prefix(from_turn);
  const std::string_view whole = whole_.substr(from_whole);
  const auto range = [from_whole](size_t first, size_t last) {
    return TextRange{from_whole + first, from_whole + last};
  };
  const size_t common = CommonPrefix(turn, whole);
  if (common == turn.size()) return range(begin, common);

  // The piece [common, cut_end) of T is missing in F.
  const size_t rest = LongestOverlap(turn.substr(common), whole.substr(common));
  const size_t cut_end = turn.size() - rest;
  const size_t answer_at = python::FindLast(turn, answer);
  const bool found_answer = answer_at != std::string_view::npos && answer_at >= begin;
  const size_t needed = found_answer && !answer.empty() ? answer_at + answer.size() : turn.size();
  if (cut_end < needed && !Stripped(turn.substr(std::max(cut_end, begin))).empty()) {
    if (!all_found_) return std::nullopt;
    const size_t end = common + rest;
    if (cut_end <= begin) return range(begin - (cut_end - common), end);
    if (common >= begin) return range(begin, end);
    // The missing piece ends within the turn as it is written here. It ends before the turn if the
    // turn's first characters are also those of the missing piece.
    const size_t overlap = cut_end - begin;
    const bool shifted =
        overlap <= common && turn.substr(begin, overlap) == whole.substr(common - overlap, overlap);
    return range(shifted ? common - overlap : common, end);
  }
  // F goes on otherwise behind the message's text.
  if (answer.empty() || !found_answer || common < answer_at + answer.size()) return std::nullopt;
  return range(begin, EndOfSharedMark(turn, answer_at + answer.size(), common));
}

std::optional<TextRange> TurnFinder::Find(std::optional<size_t> begin, std::string_view turn,
                                          std::string_view message) {
  const std::string_view answer = Answer(message);
  std::optional<TextRange> found;
  if (begin.has_value()) {
    if (previous_end_ > 0 && StartsWith(turn, previous_turn_)) {
      found = Place(*begin, turn, previous_turn_.size(), previous_end_, answer);
    }
    if (!found.has_value()) found = Place(*begin, turn, 0, 0, answer);
  }
  // Two turns do not share text.
  if (!found.has_value() || found->first < previous_end_ || found->second <= found->first) {
    all_found_ = false;
    return std::nullopt;
  }
  previous_turn_ = turn;
  previous_end_ = found->second;
  return WithoutSpace(whole_, *found, answer);
}

}  // namespace megatrain
