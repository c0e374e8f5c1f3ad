#include "engine/data/sequences/document_encoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/target_tokens.h"
#include "engine/data/sequences/packing.h"
#include "engine/tokenizer/parallel_encode.h"

namespace megatrain {

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

void DocumentEncoder::AppendText(std::vector<uint32_t>* words) {
  if (!begun_ && !ids_.empty()) begun_ = BeginWith(kDocumentBit, kTargetBit, words);
  for (const int32_t id : ids_) {
    words->push_back(static_cast<uint32_t>(id) | kTargetBit | (begun_ ? 0 : kDocumentBit));
    begun_ = true;
  }
}

absl::StatusOr<size_t> DocumentEncoder::TextPiece(std::string_view text, bool last,
                                                  std::vector<uint32_t>* words, ThreadPool* pool) {
  ids_.clear();
  const Tokenizer& tokenizer = *options_.tokenizer;
  MT_ASSIGN_OR_RETURN(const size_t size,
                      pool == nullptr
                          ? tokenizer.EncodePiece(text, last, &piece_, &ids_)
                          : EncodePieceInParallel(tokenizer, *pool, text, last, &piece_, &ids_));
  MT_RETURN_IF_ERROR(CheckIds());
  AppendText(words);
  return size;
}

void DocumentEncoder::EndText(std::vector<uint32_t>* words) {
  ids_ = options_.around.after;
  if (ids_.empty() || ids_.back() != options_.eos_id) ids_.push_back(options_.eos_id);
  AppendText(words);
  ForgetText();
}

void DocumentEncoder::AppendWhole(bool begun, std::vector<uint32_t>* words) const {
  for (size_t i = 0; i < ids_.size(); ++i) {
    words->push_back(static_cast<uint32_t>(ids_[i]) | (target_[i] != 0 ? kTargetBit : 0) |
                     (!begun && i == 0 ? kDocumentBit | kWholeBit : 0));
  }
}

void DocumentEncoder::ForgetText() {
  piece_ = {};
  begun_ = false;
}

void DocumentEncoder::Restart() {
  ForgetText();
  largest_id_ = -1;
  turns_without_loss_ = 0;
}

absl::Status DocumentEncoder::Encode(const Example& example, std::vector<uint32_t>* words) {
  if (example.pair.has_value()) {
    const PreferencePair& pair = *example.pair;
    if (pair.is_chat && options_.chat_template == nullptr) {
      return absl::InvalidArgumentError(
          "the record holds messages, and the model's directory has no chat template that could "
          "render them; name one in data.chat_template");
    }
    if (!pair.is_chat && options_.eos_id < 0) {
      return absl::InvalidArgumentError(
          "the record holds texts, and neither tokenizer_config.json's eos_token nor config.json's "
          "eos_token_id says which token ends a text; add one of them, or give messages");
    }
    if (pair.is_chat) {
      MT_RETURN_IF_ERROR(EncodeChat(pair.chosen_chat, words));
      return EncodeChat(pair.rejected_chat, words);
    }
    MT_RETURN_IF_ERROR(EncodeAnswer(pair.prompt, pair.chosen, words));
    return EncodeAnswer(pair.prompt, pair.rejected, words);
  }
  if (!example.is_chat) {
    ForgetText();  // one before may have been refused
    std::string_view rest = example.text;
    for (size_t take = options_.text_piece_bytes; !rest.empty();) {
      const bool last = take >= rest.size();
      MT_ASSIGN_OR_RETURN(const size_t size, TextPiece(rest.substr(0, take), last, words));
      rest.remove_prefix(size);
      take = size == 0 ? take * 2 : options_.text_piece_bytes;
    }
    EndText(words);
    return absl::OkStatus();
  }
  return EncodeChat(example.conversation, words);
}

absl::Status DocumentEncoder::EncodeAnswer(const std::string& prompt, const std::string& answer,
                                           std::vector<uint32_t>* words) {
  ids_.clear();
  std::vector<size_t> offsets;
  const std::string text = prompt + answer;
  MT_RETURN_IF_ERROR(options_.tokenizer->EncodeWithOffsets(text, &ids_, &offsets));
  const TextRange answer_range = {prompt.size(), text.size()};
  target_.clear();
  AppendTargets(offsets, text.size(), {&answer_range, 1}, &target_);
  ids_.insert(ids_.end(), options_.around.after.begin(), options_.around.after.end());
  if (ids_.empty() || ids_.back() != options_.eos_id) ids_.push_back(options_.eos_id);
  target_.resize(ids_.size(), 1);
  MT_RETURN_IF_ERROR(CheckIds());
  AppendWhole(BeginWith(kDocumentBit | kWholeBit, 0, words), words);
  return absl::OkStatus();
}

absl::Status DocumentEncoder::EncodeChat(const Conversation& conversation,
                                         std::vector<uint32_t>* words) {
  ids_.clear();
  target_.clear();
  int64_t turns_without_loss = 0;
  MT_RETURN_IF_ERROR(options_.chat_template->Render(conversation, *options_.tokenizer, &ids_,
                                                    &target_, &turns_without_loss));
  if (ids_.empty() || ids_.size() != target_.size()) {
    return absl::InvalidArgumentError("the chat template makes no token of the example");
  }
  MT_RETURN_IF_ERROR(CheckIds());
  turns_without_loss_ += turns_without_loss;
  const bool all = options_.chat_template->train_on() == TrainOn::kAll;
  AppendWhole(
      options_.around_chats && BeginWith(kDocumentBit | kWholeBit, all ? kTargetBit : 0, words),
      words);
  return absl::OkStatus();
}

}  // namespace megatrain
