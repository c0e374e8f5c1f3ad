#include "engine/job/data_format.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

const char* DataFormatName(DataFormat format) {
  switch (format) {
    case DataFormat::kText:
      return "text";
    case DataFormat::kTokens:
      return "tokens";
    case DataFormat::kAlpaca:
      return "alpaca";
    case DataFormat::kShareGpt:
      return "sharegpt";
    case DataFormat::kMessages:
      return "messages";
  }
  return "unknown";
}

absl::StatusOr<DataFormat> ParseDataFormat(const std::string& word) {
  for (const DataFormat format : {DataFormat::kText, DataFormat::kTokens, DataFormat::kAlpaca,
                                  DataFormat::kShareGpt, DataFormat::kMessages}) {
    if (word == DataFormatName(format)) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expects ", kDataFormatNames, ", got ", word.substr(0, 80)));
}

}  // namespace megatrain
