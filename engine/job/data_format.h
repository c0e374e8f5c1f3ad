// DataFormat lists the formats of training data. KindOfFile tells by a file's name how it is
// encoded.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_
#define MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// The formats of training data. engine/data/README.md describes their records.
enum class DataFormat { kText, kTokens, kAlpaca, kShareGpt, kMessages, kPreference };

// Returns the job file's word: "text", "tokens", "alpaca", "sharegpt", "messages" or
// "preference".
const char* DataFormatName(DataFormat format);
// Parses a word of DataFormatName. Returns InvalidArgument for other words.
absl::StatusOr<DataFormat> ParseDataFormat(const std::string& word);

// All words, for error messages.
inline constexpr char kDataFormatNames[] = "text, tokens, alpaca, sharegpt, messages or preference";

// The content of a file by the end of its name; kText if the name tells nothing. kIds are the token
// ids of .npy and .bin files.
enum class FileContent { kText, kJson, kCsv, kParquet, kIds };
enum class Compression { kNone, kGzip, kZstd };

struct FileKind {
  FileContent content = FileContent::kText;
  Compression compression = Compression::kNone;
  bool known = false;  // the name ends in a way that KindOfFile lists
};

// Returns the kind of a file by the end of its name, in upper or lower case: .txt, .jsonl, .json,
// .csv, .parquet, .npy or .bin. The first four may be followed by .gz or .zst.
FileKind KindOfFile(std::string_view path);

// Returns true if files of `kind` may hold data of `format`. Files of ids hold `tokens`, and only
// they do. Files of text hold `text` alone. A file of unknown kind may hold all but `tokens`.
bool MayHold(const FileKind& kind, DataFormat format);

// Returns OK unless the name of the file tells that it cannot be read. Returns Unimplemented for
// Parquet if there is no ParquetProgram, and InvalidArgument for compressed files of Parquet or of
// ids. The messages say what to do. Does not look at the file itself.
absl::Status CheckReadable(const std::string& path);

// Returns the program that reads Parquet (engine/data/parquet): megatrain-parquet beside this
// program, or what the environment variable MEGATRAIN_PARQUET names. Returns Unimplemented, with
// what to do, if it is not there. `path` is the file to be read, for messages.
absl::StatusOr<std::string> ParquetProgram(const std::string& path);

// Returns the ends of names that go with a format, for error messages.
const char* FileNamesOf(DataFormat format);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_FORMAT_H_
