#include "engine/tokenizer/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
// Unicode's \w: Alphabetic, marks, decimal numbers, connectors, joiners.
bool IsWordCharacter(char32_t c) {
  const auto code_point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(code_point, UCHAR_ALPHABETIC) ||
         u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL) ||
         (U_MASK(u_charType(code_point)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

namespace {

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(Utf8At(text, Utf8Before(text, text.size())));
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(Utf8At(text, 0));
}

// Returns where the white space that ends at `end` begins, not before `floor`.
size_t SpaceBefore(std::string_view text, size_t end, size_t floor) {
  while (end > floor) {
    const size_t before = Utf8Before(text, end);
    if (!IsWhiteSpace(Utf8At(text, before))) break;
    end = before;
  }
  return std::max(end, floor);
}

}  // namespace

size_t SpaceAfter(std::string_view text, size_t begin) {
  while (begin < text.size() && IsWhiteSpace(Utf8At(text, begin))) {
    begin += Utf8Length(static_cast<unsigned char>(text[begin]));
  }
  return begin;
}

int32_t AddedTokenMatcher::Child(int32_t node, uint8_t byte) const {
  for (const auto& [label, child] : nodes_[node].children) {
    if (label == byte) return child;
  }
  return -1;
}

absl::Status AddedTokenMatcher::Add(std::string_view text, const AddedToken& token) {
  int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, child);
      nodes_.emplace_back();
    }
    node = child;
  }
  if (node == 0 || nodes_[node].token >= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("added token \"", ToAbsl(text), "\" is empty or there twice"));
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  begins_[static_cast<uint8_t>(text[0])] = true;
  bytes_max_ = std::max(bytes_max_, text.size());
  tokens_.push_back(token);
  return absl::OkStatus();
}

const AddedToken* AddedTokenMatcher::Longest(std::string_view text, size_t at, size_t* end) const {
  const AddedToken* token = nullptr;
  int32_t node = 0;
  for (size_t next = at; next < text.size(); ++next) {
    node = Child(node, static_cast<uint8_t>(text[next]));
    if (node < 0) break;
    if (nodes_[node].token >= 0) {
      token = &tokens_[nodes_[node].token];
      *end = next + 1;
    }
  }
  return token;
}

bool AddedTokenMatcher::BeginsAt(std::string_view text, size_t at) const {
  size_t end = at;
  return Longest(text, at, &end) != nullptr;
}

bool AddedTokenMatcher::MayCross(std::string_view text, size_t at) const {
  for (size_t begin = at - std::min(at, bytes_max_); begin < at; ++begin) {
    size_t end = begin;
    if (begins_[static_cast<uint8_t>(text[begin])] && Longest(text, begin, &end) != nullptr &&
        end > at) {
      return true;
    }
  }
  return false;
}

void AddedTokenMatcher::Cut(
    std::string_view text,
    absl::FunctionRef<void(size_t begin, size_t end, const AddedToken* token)> piece) const {
  size_t done = 0;  // pieces up to here are given
  size_t at = empty() ? text.size() : 0;
  while (at < text.size()) {
    if (!begins_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    size_t match_end = at;
    const AddedToken* const token = Longest(text, at, &match_end);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = match_end;
    at = match_end;  // a match that is discarded below is passed over all the same
    if (token->single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    if (token->lstrip) begin = SpaceBefore(text, begin, std::min(done, begin));
    if (token->lstrip) begin = std::max(begin, done);
    if (token->rstrip) end = SpaceAfter(text, end);
    if (done < begin) piece(done, begin, nullptr);
    piece(begin, std::max(begin, end), token);
    done = end;
  }
  if (done < text.size()) piece(done, text.size(), nullptr);
}

}  // namespace megatrain
