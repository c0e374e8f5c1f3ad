// The formats of training data files.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_
#define MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

enum class DataFormat { kText, kTokens, kAlpaca, kShareGpt, kMessages };

// Returns the job file's word: "text", "tokens", "alpaca", "sharegpt" or "messages".
const char* DataFormatName(DataFormat format);
// Parses a word of DataFormatName. Returns InvalidArgument for other words.
absl::StatusOr<DataFormat> ParseDataFormat(const std::string& word);

// All words, for error messages.
inline constexpr char kDataFormatNames[] = "text, tokens, alpaca, sharegpt or messages";

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_
