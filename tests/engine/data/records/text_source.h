// A text as a source of bytes.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_TEXT_SOURCE_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_TEXT_SOURCE_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/data/records/byte_source.h"

namespace megatrain {

// Gives at most `step` bytes a read.
class TextSource : public ByteSource {
 public:
  explicit TextSource(std::string text, size_t step = std::string::npos)
      : text_(std::move(text)), step_(step) {}
  absl::StatusOr<size_t> Read(void* to, size_t bytes) override {
    const size_t take = std::min({bytes, step_, text_.size() - position_});
    std::memcpy(to, text_.data() + position_, take);
    position_ += take;
    return take;
  }
  bool at_end() const { return position_ == text_.size(); }

 private:
  const std::string text_;
  const size_t step_;
  size_t position_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_TEXT_SOURCE_H_
