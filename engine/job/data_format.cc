#include "engine/job/data_format.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
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
    case DataFormat::kPreference:
      return "preference";
  }
  return "unknown";
}

absl::StatusOr<DataFormat> ParseDataFormat(const std::string& word) {
  for (const DataFormat format :
       {DataFormat::kText, DataFormat::kTokens, DataFormat::kAlpaca, DataFormat::kShareGpt,
        DataFormat::kMessages, DataFormat::kPreference}) {
    if (word == DataFormatName(format)) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expects ", kDataFormatNames, ", got ", word.substr(0, 80)));
}

FileKind KindOfFile(std::string_view path) {
  std::string name = absl::AsciiStrToLower(std::string(path.substr(path.rfind('/') + 1)));
  FileKind kind;
  for (const auto& [end, compression] :
       {std::pair{".gz", Compression::kGzip}, std::pair{".zst", Compression::kZstd}}) {
    if (!absl::EndsWith(name, end)) continue;
    kind.compression = compression;
    name.erase(name.rfind('.'));
    break;
  }
  for (const auto& [end, content] :
       {std::pair{".txt", FileContent::kText}, std::pair{".jsonl", FileContent::kJson},
        std::pair{".json", FileContent::kJson}, std::pair{".csv", FileContent::kCsv},
        std::pair{".parquet", FileContent::kParquet}, std::pair{".npy", FileContent::kIds},
        std::pair{".bin", FileContent::kIds}}) {
    if (!absl::EndsWith(name, end)) continue;
    kind.content = content;
    kind.known = kind.compression == Compression::kNone ||
                 (content != FileContent::kParquet && content != FileContent::kIds);
    break;
  }
  return kind;
}

bool MayHold(const FileKind& kind, DataFormat format) {
  if (!kind.known) return format != DataFormat::kTokens;
  if (format == DataFormat::kTokens) return kind.content == FileContent::kIds;
  return kind.content != FileContent::kIds &&
         (kind.content != FileContent::kText || format == DataFormat::kText);
}

absl::Status CheckReadable(const std::string& path) {
  const FileKind kind = KindOfFile(path);
  const bool is_parquet = kind.content == FileContent::kParquet;
  if (kind.compression != Compression::kNone && (is_parquet || kind.content == FileContent::kIds)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": files of ", is_parquet ? "Parquet" : "token ids",
                     " are not read compressed; decompress it with ",
                     kind.compression == Compression::kGzip ? "gunzip" : "unzstd"));
  }
  if (!is_parquet) return absl::OkStatus();
  return ParquetProgram(path).status();
}

absl::StatusOr<std::string> ParquetProgram(const std::string& path) {
  std::string program;
  if (const char* const named = std::getenv("MEGATRAIN_PARQUET"); named != nullptr) {
    program = named;
  } else {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    program = self.parent_path() / "megatrain-parquet";
  }
  if (::access(program.c_str(), X_OK) == 0) return program;
  return absl::UnimplementedError(absl::StrCat(
      path,
      ": Parquet is read with Apache Arrow, which this installation was built without "
      "(there is no program ",
      program,
      "); run deploy/install-deps.sh --parquet and build again, or convert the file to JSON Lines, "
      "as with python3 -c \"import sys, pandas; pandas.read_parquet(sys.argv[1])"
      ".to_json(sys.argv[2], orient='records', lines=True)\" IN.parquet OUT.jsonl.gz"));
}

const char* FileNamesOf(DataFormat format) {
  switch (format) {
    case DataFormat::kTokens:
      return ".npy and .bin";
    case DataFormat::kText:
      return ".txt, .jsonl, .json and .csv, also with .gz or .zst, and .parquet";
    default:
      return ".jsonl, .json and .csv, also with .gz or .zst, and .parquet";
  }
}

}  // namespace megatrain
