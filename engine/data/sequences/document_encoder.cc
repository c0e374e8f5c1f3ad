#include "engine/data/sequences/document_encoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/sequences/packing.h"

namespace megatrain {
absl::Status DocumentEncoder::CheckIds() {
  for (const int32_t id : ids_) {
    if (id < 0 || id >= options_.vocabulary || static_cast<uint32_t>(id) > kTokenMask) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tokenizer gives token ", id, ", which is not below the model's vocabulary of ",
          options_.vocabulary, "; the tokenizer is not this model's"));
    }
    largest_id_ = std::max<int64_t>(largest_id_, id);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> DocumentEncoder::TextPiece(std::string_view text, bool last,
                                                  std::vector<uint32_t>* words) {
  ids_.clear();
  MT_ASSIGN_OR_RETURN(const size_t size,
                      options_.tokenizer->EncodePiece(text, last, &piece_, &ids_));
  MT_RETURN_IF_ERROR(CheckIds());
  for (const int32_t id : ids_) {
    words->push_back(static_cast<uint32_t>(id) | kTargetBit | (begun_ ? 0 : kDocumentBit));
    begun_ = true;
  }
  return size;
}

void DocumentEncoder::EndText(std::vector<uint32_t>* words) {
  words->push_back(static_cast<uint32_t>(options_.eos_id) | kTargetBit |
                   (begun_ ? 0 : kDocumentBit));
  piece_ = {};
  begun_ = false;
}

absl::Status DocumentEncoder::Encode(const Example& example, std::vector<uint32_t>* words) {
  if (!example.is_chat) {
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

  ids_.clear();
  target_.clear();
  MT_RETURN_IF_ERROR(options_.chat_template->Render(example.conversation, *options_.tokenizer,
                                                    &ids_, &target_, &turns_left_out_));
  if (ids_.empty() || ids_.size() != target_.size()) {
    return absl::InvalidArgumentError("the chat template makes no token of the example");
  }
  MT_RETURN_IF_ERROR(CheckIds());
  for (size_t i = 0; i < ids_.size(); ++i) {
    words->push_back(static_cast<uint32_t>(ids_[i]) | (target_[i] != 0 ? kTargetBit : 0) |
                     (i == 0 ? kDocumentBit | kWholeBit : 0));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
