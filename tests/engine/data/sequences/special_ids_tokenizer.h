// SpecialIdsTokenizer is the bytes tokenizer with other special ids.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_SPECIAL_IDS_TOKENIZER_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_SPECIAL_IDS_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

class SpecialIdsTokenizer : public Tokenizer {
 public:
  SpecialIdsTokenizer() = default;
  // Has the end of the bytes tokenizer.
  SpecialIdsTokenizer(SpecialIds around, int32_t bos)
      : eos(kBytesEosId), bos(bos), around(std::move(around)) {}

  absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    return bytes_->Encode(text, ids);
  }
  absl::StatusOr<size_t> EncodePiece(std::string_view text, bool last, PieceState* state,
                                     std::vector<int32_t>* ids) const override {
    return bytes_->EncodePiece(text, last, state, ids);
  }
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    return bytes_->Decode(ids, skip_special);
  }
  std::optional<int32_t> TokenId(std::string_view) const override { return std::nullopt; }
  std::string TokenText(int32_t id) const override { return bytes_->TokenText(id); }
  int64_t vocabulary() const override { return kBytesVocabulary; }
  int32_t eos_id() const override { return eos; }
  int32_t bos_id() const override { return bos; }
  int32_t pad_id() const override { return pad; }
  std::string fingerprint() const override { return "special ids"; }
  SpecialIds special_tokens_around() const override { return around; }

  int32_t eos = -1, bos = -1, pad = -1;
  SpecialIds around;

 private:
  const std::shared_ptr<const Tokenizer> bytes_ = MakeBytesTokenizer();
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_SPECIAL_IDS_TOKENIZER_H_
