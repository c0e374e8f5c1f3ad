#include "engine/job/data_file_keys.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/job/nearest_key.h"

namespace megatrain {
namespace {

using Result = std::optional<ValueError>;

Result Invalid(const YamlNode& node, std::string suffix, std::string message) {
  return ValueError{std::move(message), std::move(suffix), node.where};
}

Result ReadText(const YamlNode& node, const std::string& key, std::string* text) {
  if (node.kind != YamlNode::Kind::kScalar || node.scalar.empty()) {
    return Invalid(node, absl::StrCat(".", key),
                   absl::StrCat("expects text, got ", node.Describe()));
  }
  *text = node.scalar;
  return std::nullopt;
}

// The places of errors are relative to the entry.
Result ReadDataFile(const YamlNode& node, DataFile* file) {
  if (node.kind != YamlNode::Kind::kMap) {
    return Invalid(node, "",
                   absl::StrCat("expects {path: ..., format: ...}, got ", node.Describe()));
  }
  std::string format;
  for (const auto& [key, value] : node.entries) {
    if (key == "path") {
      if (Result error = ReadText(value, key, &file->path)) return error;
    } else if (key == "format") {
      if (Result error = ReadText(value, key, &format)) return error;
      absl::StatusOr<DataFormat> parsed = ParseDataFormat(format);
      if (!parsed.ok()) return Invalid(value, ".format", std::string(parsed.status().message()));
      file->format = *parsed;
    } else if (key == "dtype") {
      if (Result error = ReadText(value, key, &file->dtype)) return error;
      if (file->dtype != "uint16" && file->dtype != "uint32") {
        return Invalid(value, ".dtype",
                       absl::StrCat("expects uint16 or uint32, got ", value.Describe()));
      }
    } else {
      return Invalid(value, absl::StrCat(".", key),
                     absl::StrCat("unknown key; did you mean ",
                                  NearestKey(key, {"path", "format", "dtype"}), "?"));
    }
  }
  if (file->path.empty()) return Invalid(node, ".path", "is missing");
  if (format.empty()) {
    return Invalid(node, ".format", absl::StrCat("is missing; there are ", kDataFormatNames));
  }
  const bool is_bin = absl::EndsWith(file->path, ".bin");
  if (file->format == DataFormat::kTokens) {
    if (!is_bin && !absl::EndsWith(file->path, ".npy")) {
      return Invalid(node, ".path",
                     absl::StrCat("format tokens expects a .npy or .bin file, got ", file->path));
    }
    if (is_bin && file->dtype.empty()) {
      return Invalid(node, ".dtype",
                     "is missing; a .bin file needs dtype: uint16 or dtype: uint32");
    }
    if (!is_bin && !file->dtype.empty()) {
      return Invalid(node, ".dtype", "is for .bin files; a .npy file says its own");
    }
  } else if (!file->dtype.empty()) {
    return Invalid(node, ".dtype", absl::StrCat("is for format tokens, not ", format));
  }
  return std::nullopt;
}

}  // namespace

std::optional<ValueError> ReadDataFiles(const YamlNode& node, std::vector<DataFile>* files) {
  files->clear();
  if (node.kind == YamlNode::Kind::kNull) return std::nullopt;
  if (node.kind != YamlNode::Kind::kSequence) return ValueError{};
  for (const YamlNode& item : node.items) {
    DataFile file;
    if (Result error = ReadDataFile(item, &file)) {
      error->suffix = absl::StrCat("[", files->size(), "]", error->suffix);
      return error;
    }
    files->push_back(std::move(file));
  }
  return std::nullopt;
}

std::string DataFilesText(const std::vector<DataFile>& files) {
  std::string text = "[";
  for (const DataFile& file : files) {
    // The length before the path keeps the text unambiguous whatever the path holds.
    absl::StrAppend(&text, text.size() == 1 ? "" : ", ", "{path(", file.path.size(),
                    "): ", file.path, ", format: ", DataFormatName(file.format));
    if (!file.dtype.empty()) absl::StrAppend(&text, ", dtype: ", file.dtype);
    text += "}";
  }
  return text + "]";
}

}  // namespace megatrain
