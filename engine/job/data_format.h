// The formats of training data, and what the name of a file says of its content.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_
#define MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

enum class DataFormat { kText, kTokens, kAlpaca, kShareGpt, kMessages, kPreference };

// Returns the job file's word: "text", "tokens", "alpaca", "sharegpt", "messages" or
// "preference".
const char* DataFormatName(DataFormat format);
// Parses a word of DataFormatName. Returns InvalidArgument for other words.
absl::StatusOr<DataFormat> ParseDataFormat(const std::string& word);

// All words, for error messages.
inline constexpr char kDataFormatNames[] = "text, tokens, alpaca, sharegpt, messages or preference";

// The content that a file's name tells. A file of no known name is kText.
enum class FileContent { kText, kJson, kCsv, kParquet, kIds };
enum class Compression { kNone, kGzip, kZstd };

struct FileKind {
  FileContent content = FileContent::kText;
  Compression compression = Compression::kNone;
  bool known = false;  // the name ends in one of the words below
};

// Tells by the end of the name, in upper or lower case: .txt, .jsonl or .json, .csv, .parquet, .npy
// or .bin. One of text (the first four) may be followed by .gz or .zst.
FileKind KindOfFile(std::string_view path);

// Returns true if files of `kind` may hold data of `format`. Ids are format `tokens`, and nothing
// else is. A file of no known name may be text of any form.
bool MayHold(const FileKind& kind, DataFormat format);

// Returns Unimplemented, with what to do, for a file that this installation cannot read.
absl::Status CheckReadable(const std::string& path);

// Returns the program that reads Parquet (engine/data/parquet): megatrain-parquet beside this
// program, or what the environment variable MEGATRAIN_PARQUET names. Returns Unimplemented, with
// what to do, if it is not there. `path` is the file to be read, for messages.
absl::StatusOr<std::string> ParquetProgram(const std::string& path);

// The ends of names that go with a format, for error messages.
const char* FileNamesOf(DataFormat format);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_
