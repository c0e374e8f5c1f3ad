#include "engine/job/data_file_keys.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/config/config_values.h"

namespace megatrain {
namespace {

std::vector<ConfigKey> DataFileKeys(DataFile* file) {
  return {
      {.path = "path",
       .value = Path(&file->path, "the path of a file, a directory or a glob"),
       .help = "a file, a directory of such files, or a glob (*, ?, [...], **); a relative path is "
               "taken from the job file's directory",
       .default_or_example = "\"train.jsonl\"",
       .has_default = false,
       .required_hint = ""},
      {.path = "format",
       .value = Choice<DataFormat>(&file->format, {{"text", DataFormat::kText},
                                                   {"tokens", DataFormat::kTokens},
                                                   {"alpaca", DataFormat::kAlpaca},
                                                   {"sharegpt", DataFormat::kShareGpt},
                                                   {"messages", DataFormat::kMessages},
                                                   {"preference", DataFormat::kPreference}}),
       .help = "what the file holds",
       .default_or_example = "\"alpaca\"",
       .has_default = false,
       .required_hint = absl::StrCat("; there are ", kDataFormatNames)},
      {.path = "dtype",
       .value = Choice(&file->dtype, {"uint16", "uint32"}),
       .help = "type of the tokens in a .bin file; for format tokens only",
       .default_or_example = "\"uint16\"",
       .has_default = false},
      {.path = "weight",
       .value = Number(&file->weight, {0, 1e9, false, true}),
       .help = "share of the training sequences that are taken from this entry, beside the others' "
               "weights; on all entries of data.train or on none",
       .default_or_example = "0.7",
       .has_default = false},
  };
}

// Names become parts of metrics' names.
bool IsSetName(const std::string& name) { return IsPlainName(name, 64); }

std::vector<ConfigKey> EvalFileKeys(DataFile* file) {
  std::vector<ConfigKey> keys = DataFileKeys(file);
  keys.push_back({.path = "name",
                  .value = Text(&file->name, "1 to 64 letters, digits, '-', '_' or '.'",
                                "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$", IsSetName),
                  .help = "evaluation set with a loss of its own; files of one name are one set",
                  .default_or_example = "\"chat\"",
                  .has_default = false});
  return keys;
}

// A path may also be a directory or a glob, whose files are looked at when they are found.
std::optional<ValueError> CheckDataFile(const DataFile& file) {
  const FileKind kind = KindOfFile(file.path);
  if (file.format != DataFormat::kTokens) {
    if (file.dtype.empty()) return std::nullopt;
    return ValueError{absl::StrCat("is for format tokens, not ", DataFormatName(file.format)),
                      "dtype", ""};
  }
  if (kind.known && kind.content != FileContent::kIds) {
    return ValueError{absl::StrCat("format tokens expects a .npy or .bin file, got ", file.path),
                      "path", ""};
  }
  if (absl::EndsWithIgnoreCase(file.path, ".bin") && file.dtype.empty()) {
    return ValueError{"is missing; a .bin file needs dtype: uint16 or dtype: uint32", "dtype", ""};
  }
  if (absl::EndsWithIgnoreCase(file.path, ".npy") && !file.dtype.empty()) {
    return ValueError{"is for .bin files; a .npy file says its own", "dtype", ""};
  }
  return std::nullopt;
}

constexpr char kPathOpens[] = "{path(";
constexpr char kPathBegins[] = "): ";

// Replaces what is not UTF-8, as JSON does that holds the text.
std::string AsUtf8(const std::string& path) {
  using Json = nlohmann::json;
  return Json::parse(Json(path).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

std::string DataFilesText(const std::vector<DataFile>& files) {
  std::string text = "[";
  for (const DataFile& file : files) {
    // The length before the path keeps the text unambiguous whatever the path holds.
    const std::string path = AsUtf8(file.path);
    absl::StrAppend(&text, text.size() == 1 ? "" : ", ", kPathOpens, path.size(), kPathBegins, path,
                    ", format: ", DataFormatName(file.format));
    if (!file.dtype.empty()) absl::StrAppend(&text, ", dtype: ", file.dtype);
    if (!file.name.empty()) absl::StrAppend(&text, ", name: ", file.name);
    if (file.weight > 0) absl::StrAppendFormat(&text, ", weight: %.17g", file.weight);
    text += "}";
  }
  return text + "]";
}

}  // namespace

bool IsPlainName(const std::string& name, size_t bytes_max) {
  bool good = !name.empty() && name.size() <= bytes_max && name[0] != '.' && name[0] != '-';
  for (const char c : name) {
    good = good && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.');
  }
  return good;
}

std::string DataFilesWithoutPaths(absl::string_view text) {
  std::string rest;
  while (true) {
    const size_t opens = text.find(kPathOpens);
    const size_t digits = opens + absl::string_view(kPathOpens).size();
    const size_t begins = opens == text.npos ? text.npos : text.find(kPathBegins, digits);
    size_t bytes = 0;
    if (begins == text.npos || !absl::SimpleAtoi(text.substr(digits, begins - digits), &bytes)) {
      break;
    }
    const size_t path = begins + absl::string_view(kPathBegins).size();
    if (bytes > text.size() - path) break;
    absl::StrAppend(&rest, text.substr(0, opens), "{path");
    text.remove_prefix(path + bytes);
  }
  return absl::StrCat(rest, text);
}

ConfigValue TrainFiles(std::vector<DataFile>* files) {
  return ListOf(files, DataFileKeys, CheckDataFile, DataFilesText);
}

ConfigValue EvalFiles(std::vector<DataFile>* files) {
  return ListOf(files, EvalFileKeys, CheckDataFile, DataFilesText);
}

}  // namespace megatrain
