#include "engine/hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/hf/safetensors_format.h"

namespace megatrain {
namespace {

const SafetensorsDType* FindDType(std::string_view name) {
  for (const SafetensorsDType& dtype : kSafetensorsDTypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

std::optional<int64_t> CheckedProduct(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t length : shape) {
    if (__builtin_mul_overflow(product, length, &product)) return std::nullopt;
  }
  return product;
}

absl::Status Malformed(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// An integer in [0, 2^63).
std::optional<int64_t> AsSize(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(number);
}

// Bytes of `elements` of `dtype`; nothing if they overflow or do not fill whole bytes.
std::optional<int64_t> DataBytes(int64_t elements, const SafetensorsDType& dtype) {
  int64_t bits;
  if (__builtin_mul_overflow(elements, dtype.bits, &bits) || bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const nlohmann::json& value,
                                              const std::string& path) {
  const auto malformed = [&](const std::string& what) {
    return Malformed(path, absl::StrCat("tensor \"", name, "\": ", what));
  };
  if (!value.is_object()) return malformed("its description is not an object");
  SafetensorsTensor tensor;
  tensor.name = name;
  bool has_offsets = false, has_shape = false;
  for (const auto& [key, field] : value.items()) {
    if (key == "dtype") {
      if (!field.is_string()) return malformed("dtype is not a string");
      tensor.dtype = field.get<std::string>();
    } else if (key == "shape") {
      if (!field.is_array()) return malformed("shape is not a list");
      for (const nlohmann::json& length : field) {
        const std::optional<int64_t> size = AsSize(length);
        if (!size) {
          return malformed(
              absl::StrCat("shape holds ", DescribeJson(length), ", not a length below 2^63"));
        }
        tensor.shape.push_back(*size);
      }
      has_shape = true;
    } else if (key == "data_offsets") {
      if (!field.is_array() || field.size() != 2 || !AsSize(field[0]) || !AsSize(field[1])) {
        return malformed("data_offsets is not a list of two offsets below 2^63");
      }
      tensor.begin = *AsSize(field[0]);
      tensor.end = *AsSize(field[1]);
      has_offsets = true;
    } else {
      return malformed(absl::StrCat("unknown key \"", key, "\""));
    }
  }
  if (tensor.dtype.empty()) return malformed("no dtype");
  if (!has_shape) return malformed("no shape");
  if (!has_offsets) return malformed("no data_offsets");
  const SafetensorsDType* const dtype = FindDType(tensor.dtype);
  if (dtype == nullptr) return malformed(absl::StrCat("unknown dtype \"", tensor.dtype, "\""));
  const std::string shape = absl::StrCat("shape ", ShapeText(tensor.shape));
  const std::optional<int64_t> elements = CheckedProduct(tensor.shape);
  if (!elements) return malformed(absl::StrCat("the product of ", shape, " overflows"));
  tensor.elements = *elements;
  const std::optional<int64_t> bytes = DataBytes(*elements, *dtype);
  if (!bytes) return malformed(absl::StrCat("the size of ", shape, " in bytes is no integer"));
  if (tensor.begin > tensor.end) {
    return malformed(
        absl::StrCat("data_offsets [", tensor.begin, ", ", tensor.end, "] end before they begin"));
  }
  if (tensor.bytes() != *bytes) {
    return malformed(absl::StrCat(shape, " of ", tensor.dtype, " takes ", *bytes,
                                  " bytes, data_offsets [", tensor.begin, ", ", tensor.end,
                                  "] hold ", tensor.bytes()));
  }
  return tensor;
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                         const std::string& path) {
  if (json.empty() || json.front() != '{') {
    return Malformed(path, "the header does not begin with '{'");
  }
  MT_ASSIGN_OR_RETURN(const nlohmann::json root,
                      ParseJson(json, absl::StrCat(path, ": safetensors header")));
  SafetensorsHeader header;
  header.data_offset = kSafetensorsLengthBytes + static_cast<int64_t>(json.size());
  for (const auto& [name, value] : root.items()) {
    if (name == kSafetensorsMetadataKey) {
      if (!value.is_object()) return Malformed(path, "__metadata__ is not an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) {
          return Malformed(path, absl::StrCat("__metadata__: \"", key, "\" is not a string"));
        }
        header.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    MT_ASSIGN_OR_RETURN(SafetensorsTensor tensor, ParseTensor(name, value, path));
    header.tensors.push_back(std::move(tensor));
  }
  // Tensors without data may share their place with the tensor that begins there.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  const int64_t data_bytes = file_bytes - header.data_offset;
  int64_t covered = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.begin < covered) {
      return Malformed(path,
                       absl::StrCat("tensor \"", tensor.name, "\" begins at byte ", tensor.begin,
                                    " of the data and overlaps the one before, "
                                    "which ends at ",
                                    covered));
    }
    if (tensor.begin > covered) {
      return Malformed(path,
                       absl::StrCat("tensor \"", tensor.name, "\" begins at byte ", tensor.begin,
                                    " of the data and leaves a hole after byte ", covered));
    }
    if (tensor.end > data_bytes) {
      return Malformed(path, absl::StrCat("tensor \"", tensor.name, "\" ends at byte ", tensor.end,
                                          " of the data, of which the file has ", data_bytes,
                                          "; the file is truncated or damaged"));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    return Malformed(path,
                     absl::StrCat("the data has ", data_bytes, " bytes, tensors cover ", covered));
  }
  return header;
}

SafetensorsReader::SafetensorsReader(std::unique_ptr<RandomAccessFile> file,
                                     SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (const SafetensorsTensor& tensor : header_.tensors) by_name_[tensor.name] = &tensor;
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    FileSystem* files, const std::string& path) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->OpenForReading(path));
  return Open(std::move(file));
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    std::unique_ptr<RandomAccessFile> file) {
  const std::string path = file->path();
  const int64_t file_bytes = file->size();
  if (file_bytes < kSafetensorsLengthBytes) {
    return Malformed(path,
                     absl::StrCat("has ", file_bytes, " bytes: too short for a safetensors file"));
  }
  unsigned char length_bytes[kSafetensorsLengthBytes];
  MT_RETURN_IF_ERROR(file->Read(0, length_bytes, sizeof(length_bytes)));
  uint64_t length = 0;
  for (int i = kSafetensorsLengthBytes - 1; i >= 0; --i) length = length << 8 | length_bytes[i];
  if (length == 0) return Malformed(path, "the header's length is 0");
  if (length > static_cast<uint64_t>(kSafetensorsHeaderBytesMax)) {
    return Malformed(path, absl::StrCat("the header's length is ", length, " bytes; at most ",
                                        kSafetensorsHeaderBytesMax, " are allowed"));
  }
  const int64_t header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_bytes - kSafetensorsLengthBytes) {
    return Malformed(
        path, absl::StrCat("the header has ", header_bytes, " bytes but the file only ", file_bytes,
                           ": it is truncated"));
  }
  std::string json(header_bytes, '\0');
  MT_RETURN_IF_ERROR(file->Read(kSafetensorsLengthBytes, json.data(), header_bytes));
  MT_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(json, file_bytes, path));
  return std::unique_ptr<SafetensorsReader>(
      new SafetensorsReader(std::move(file), std::move(header)));
}

const SafetensorsTensor* SafetensorsReader::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

absl::Status SafetensorsReader::Read(const SafetensorsTensor& tensor, int64_t offset, void* out,
                                     int64_t bytes) const {
  return file_->Read(header_.data_offset + tensor.begin + offset, out, bytes);
}

namespace {

// The length and the header, padded: everything before the data.
std::string MakeHeader(const std::vector<SafetensorsDeclaration>& tensors, int64_t* data_bytes) {
  nlohmann::ordered_json root;
  root[std::string(kSafetensorsMetadataKey)] = {{"format", "pt"}};
  int64_t begin = 0;
  auto& members = root.get_ref<nlohmann::ordered_json::object_t&>();
  for (const SafetensorsDeclaration& tensor : tensors) {
    const int64_t end = begin + *DataBytes(*CheckedProduct(tensor.shape), *FindDType(tensor.dtype));
    nlohmann::ordered_json value;
    value["dtype"] = tensor.dtype;
    value["shape"] = tensor.shape;
    value["data_offsets"] = {begin, end};
    members.push_back({tensor.name, std::move(value)});
    begin = end;
  }
  *data_bytes = begin;
  // An invalid byte in a name becomes U+FFFD; MakeSafetensorsHeader refuses it.
  std::string json = root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const int64_t length = static_cast<int64_t>(json.size());
  json.append((kSafetensorsAlignmentBytes - length % kSafetensorsAlignmentBytes) %
                  kSafetensorsAlignmentBytes,
              ' ');
  std::string header(kSafetensorsLengthBytes, '\0');
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    header[i] = static_cast<char>(json.size() >> (8 * i));
  }
  return header + json;
}

}  // namespace

absl::StatusOr<std::string> MakeSafetensorsHeader(
    const std::vector<SafetensorsDeclaration>& tensors, const std::string& path,
    int64_t* data_bytes) {
  int64_t total = 0;
  for (const SafetensorsDeclaration& tensor : tensors) {
    const SafetensorsDType* const dtype = FindDType(tensor.dtype);
    const std::optional<int64_t> elements = CheckedProduct(tensor.shape);
    const std::optional<int64_t> bytes =
        dtype && elements && *elements >= 0 ? DataBytes(*elements, *dtype) : std::nullopt;
    if (!bytes || __builtin_add_overflow(total, *bytes, &total)) {
      return Malformed(
          path, absl::StrCat("tensor \"", tensor.name, "\" of dtype ", tensor.dtype, " and shape ",
                             ShapeText(tensor.shape), " cannot be written"));
    }
  }
  std::string header = MakeHeader(tensors, data_bytes);
  const int64_t header_bytes = static_cast<int64_t>(header.size());
  // The header as a reader sees it: catches names that appear twice or are not UTF-8.
  MT_RETURN_IF_ERROR(
      ParseSafetensorsHeader(std::string_view(header).substr(kSafetensorsLengthBytes),
                             header_bytes + *data_bytes, path)
          .status());
  if (header_bytes - kSafetensorsLengthBytes > kSafetensorsHeaderBytesMax) {
    return Malformed(path, absl::StrCat("a header of ", header_bytes, " bytes is too long"));
  }
  return header;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    FileSystem* files, const std::string& path,
    const std::vector<SafetensorsDeclaration>& tensors) {
  int64_t data_bytes = 0;
  MT_ASSIGN_OR_RETURN(const std::string header, MakeSafetensorsHeader(tensors, path, &data_bytes));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> file, FileWriter::Create(files, path));
  MT_RETURN_IF_ERROR(file->Append(header));
  return std::unique_ptr<SafetensorsWriter>(
      new SafetensorsWriter(std::move(file), static_cast<int64_t>(header.size()), data_bytes));
}

absl::Status SafetensorsWriter::Append(const void* data, int64_t bytes) {
  return file_->Append(data, bytes);
}

absl::Status SafetensorsWriter::Finish() {
  if (file_->bytes() != file_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(file_->path(), ": ", file_->bytes(),
                                                      " bytes were written, ", file_bytes_,
                                                      " were declared"));
  }
  return file_->SyncAndClose();
}

int64_t SafetensorsFileBytes(const std::vector<SafetensorsDeclaration>& tensors) {
  int64_t data_bytes = 0;
  return static_cast<int64_t>(MakeHeader(tensors, &data_bytes).size()) + data_bytes;
}

}  // namespace megatrain
