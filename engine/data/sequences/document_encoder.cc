#include "engine/data/sequences/document_encoder.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/sequences/packing.h"

namespace megatrain {
namespace {

bool IsAsciiLetter(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); }

}  // namespace

size_t LastSafeCut(std::string_view text) {
  for (size_t end = text.size(); end >= 2;) {
    const size_t feed = text.rfind('\n', end - 1);
    if (feed == std::string_view::npos || feed == 0) return 0;
    if (feed + 1 < text.size() && IsAsciiLetter(text[feed - 1]) && IsAsciiLetter(text[feed + 1])) {
      return feed + 1;
    }
    end = feed;
  }
  return 0;
}

absl::StatusOr<SpecialIds> IdsAroundText(const Tokenizer& tokenizer, AddBos add_bos) {
  SpecialIds around = tokenizer.special_tokens_around();
  if (add_bos == AddBos::kAuto) return around;
  const int32_t bos = tokenizer.bos_id();
  if (add_bos == AddBos::kTrue && bos < 0) {
    return absl::InvalidArgumentError(
        "data.add_bos: true, but the tokenizer names no beginning-of-text token (bos_token in "
        "tokenizer_config.json)");
  }
  std::erase(around.before, bos);
  if (add_bos == AddBos::kTrue) around.before.insert(around.before.begin(), bos);
  return around;
}

bool DocumentEncoder::BeginWith(uint32_t bits, uint32_t target,
                                std::vector<uint32_t>* words) const {
  for (size_t i = 0; i < options_.around.before.size(); ++i) {
    words->push_back(static_cast<uint32_t>(options_.around.before[i]) | target |
                     (i == 0 ? bits : 0));
  }
  return !options_.around.before.empty();
}

absl::Status DocumentEncoder::CheckIds() {
  for (const int32_t id : ids_) {
    if (id < 0 || id >= options_.vocabulary || static_cast<uint32_t>(id) > kTokenMask) {
      return absl::OutOfRangeError(absl::StrCat(
          "the tokenizer gives token ", id, ", which is not below the model's vocabulary of ",
          options_.vocabulary, "; the tokenizer is not this model's"));
    }
    largest_id_ = std::max<int64_t>(largest_id_, id);
  }
  return absl::OkStatus();
}

absl::Status DocumentEncoder::TextPiece(std::string_view text, bool first,
                                        std::vector<uint32_t>* words) {
  ids_.clear();
  MT_RETURN_IF_ERROR(first ? options_.tokenizer->Encode(text, &ids_)
                           : options_.tokenizer->EncodeContinued(text, &ids_));
  MT_RETURN_IF_ERROR(CheckIds());
  AppendText(first, words);
  return absl::OkStatus();
}

absl::StatusOr<size_t> DocumentEncoder::SettledPiece(std::string_view text, bool first, bool last,
                                                     PieceState* state,
                                                     std::vector<uint32_t>* words) {
  ids_.clear();
  MT_ASSIGN_OR_RETURN(const size_t settled,
                      options_.tokenizer->EncodePiece(text, last, state, &ids_));
  MT_RETURN_IF_ERROR(CheckIds());
  if (settled > 0) AppendText(first, words);
  return settled;
}

void DocumentEncoder::AppendText(bool first, std::vector<uint32_t>* words) const {
  const bool begun = !first || BeginWith(kDocumentBit, kTargetBit, words);
  for (size_t i = 0; i < ids_.size(); ++i) {
    words->push_back(static_cast<uint32_t>(ids_[i]) | kTargetBit |
                     (!begun && i == 0 ? kDocumentBit : 0));
  }
}

void DocumentEncoder::EndText(bool first, std::vector<uint32_t>* words) const {
  first = first && !BeginWith(kDocumentBit, kTargetBit, words);
  std::vector<int32_t> end = options_.around.after;
  if (end.empty() || end.back() != options_.eos_id) end.push_back(options_.eos_id);
  for (size_t i = 0; i < end.size(); ++i) {
    words->push_back(static_cast<uint32_t>(end[i]) | kTargetBit |
                     (first && i == 0 ? kDocumentBit : 0));
  }
}

absl::Status DocumentEncoder::Encode(const Example& example, std::vector<uint32_t>* words) {
  if (!example.is_chat) {
    std::string_view rest = example.text;
    const size_t begin = words->size();
    while (!rest.empty()) {
      size_t take = rest.size();
      if (take > options_.text_piece_bytes) {
        take = SafeCut(rest.substr(0, options_.text_piece_bytes));
        if (take == 0) take = rest.size();
      }
      MT_RETURN_IF_ERROR(TextPiece(rest.substr(0, take), words->size() == begin, words));
      rest.remove_prefix(take);
    }
    EndText(words->size() == begin, words);
    return absl::OkStatus();
  }

  ids_.clear();
  target_.clear();
  MT_RETURN_IF_ERROR(
      options_.chat_template->Render(example.messages, *options_.tokenizer, &ids_, &target_));
  if (ids_.empty() || ids_.size() != target_.size()) {
    return absl::InvalidArgumentError("the chat template makes no token of the example");
  }
  MT_RETURN_IF_ERROR(CheckIds());
  const bool begun =
      options_.around_chats &&
      BeginWith(kDocumentBit | kWholeBit, options_.train_on_prompt ? kTargetBit : 0, words);
  for (size_t i = 0; i < ids_.size(); ++i) {
    const bool target = options_.train_on_prompt || target_[i] != 0;
    words->push_back(static_cast<uint32_t>(ids_[i]) | (target ? kTargetBit : 0) |
                     (!begun && i == 0 ? kDocumentBit | kWholeBit : 0));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
