#include "engine/data/records/token_file.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/records/npy_header.h"

namespace megatrain {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are read as they lie in the file");

constexpr size_t kScanChunkBytes = size_t{1} << 20;

struct Layout {
  int element_bytes = 0;
  int64_t data_offset = 0;
  int64_t tokens = 0;
};

absl::StatusOr<int> BytesOfDtype(const std::string& path, const std::string& dtype) {
  if (dtype == "uint16") return 2;
  if (dtype == "uint32") return 4;
  if (dtype.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a .bin file says nothing of its type; give dtype: uint16 or uint32"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": dtype ", dtype, " is not accepted; uint16 and uint32 are"));
}

absl::StatusOr<Layout> BinLayout(const DataFileReader& file, const std::string& dtype) {
  Layout layout;
  MT_ASSIGN_OR_RETURN(layout.element_bytes, BytesOfDtype(file.path(), dtype));
  if (file.size() % layout.element_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": its ", file.size(), " bytes are no whole number of ", dtype, " elements"));
  }
  layout.tokens = file.size() / layout.element_bytes;
  return layout;
}

absl::StatusOr<Layout> NpyLayout(const DataFileReader& file, const std::string& dtype) {
  MT_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file));
  Layout layout;
  layout.data_offset = header.data_offset;
  if (header.descr == "<u2") {
    layout.element_bytes = 2;
  } else if (header.descr == "<u4") {
    layout.element_bytes = 4;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": its elements are of numpy type '", header.descr,
                     "'; uint16 ('<u2') and uint32 ('<u4') are accepted: save it with "
                     "array.astype(numpy.uint32)"));
  }
  if (header.shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": its array has ", header.shape.size(),
                     " dimensions; one is needed: save it with array.reshape(-1)"));
  }
  if (!dtype.empty() && dtype != (layout.element_bytes == 2 ? "uint16" : "uint32")) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": dtype ", dtype,
                                                   " is given, but the file says '", header.descr,
                                                   "'; leave dtype out for .npy"));
  }
  layout.tokens = header.shape[0];
  const int64_t data_bytes = file.size() - header.data_offset;
  // Divided, not multiplied: the claimed length may be anything.
  if (data_bytes % layout.element_bytes != 0 ||
      data_bytes / layout.element_bytes != layout.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": its header claims ", layout.tokens, " elements of ",
                     layout.element_bytes, " bytes, but ", data_bytes, " bytes follow it",
                     data_bytes / layout.element_bytes < layout.tokens ? ": it is cut short" : ""));
  }
  return layout;
}

// The first element of values[0, count) that is not below `limit`; count if none. Raises
// *largest_id to the greatest element.
template <typename T>
size_t FirstNotBelow(const T* values, size_t count, uint64_t limit, int64_t* largest_id) {
  T largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, values[i]);
  if (count > 0) *largest_id = std::max(*largest_id, static_cast<int64_t>(largest));
  if (largest < limit) return count;
  return std::find_if(values, values + count, [limit](T value) { return value >= limit; }) - values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const DataFile& file,
                                                           FileSystem* files) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DataFileReader> reader,
                      DataFileReader::Open(file.path, files));
  const std::string lower = absl::AsciiStrToLower(file.path);
  Layout layout;
  if (absl::EndsWith(lower, ".npy")) {
    MT_ASSIGN_OR_RETURN(layout, NpyLayout(*reader, file.dtype));
  } else if (absl::EndsWith(lower, ".bin")) {
    MT_ASSIGN_OR_RETURN(layout, BinLayout(*reader, file.dtype));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": format tokens is read from .npy and .bin files"));
  }
  return std::unique_ptr<TokenFile>(
      new TokenFile(std::move(reader), layout.element_bytes, layout.data_offset, layout.tokens));
}

absl::Status TokenFile::OutsideVocabulary(int64_t element, uint32_t id, int64_t vocabulary) const {
  return absl::InvalidArgumentError(absl::StrCat(
      path(), ": element ", element, " (from 0; at byte ", data_offset_ + element * element_bytes_,
      ") is token ", id, ", which is not below the model's vocabulary of ", vocabulary));
}

absl::StatusOr<TokenFile::Scanned> TokenFile::Scan(int64_t vocabulary,
                                                   const ByteProgress& progress) const {
  Scanned scanned;
  HashingStream stream(reader_.get());
  std::vector<char> header(static_cast<size_t>(data_offset_));
  MT_RETURN_IF_ERROR(stream.Read(header.data(), header.size()).status());
  if (progress && data_offset_ > 0) MT_RETURN_IF_ERROR(progress(data_offset_));
  std::vector<uint32_t> buffer(kScanChunkBytes / sizeof(uint32_t));
  int64_t element = 0;
  while (true) {
    MT_ASSIGN_OR_RETURN(const size_t got, stream.Read(buffer.data(), kScanChunkBytes));
    if (got == 0) break;
    const size_t count = got / static_cast<size_t>(element_bytes_);
    const uint64_t limit = static_cast<uint64_t>(vocabulary);
    const size_t first = element_bytes_ == 2
                             ? FirstNotBelow(reinterpret_cast<const uint16_t*>(buffer.data()),
                                             count, limit, &scanned.largest_id)
                             : FirstNotBelow(buffer.data(), count, limit, &scanned.largest_id);
    if (first < count) {
      uint32_t id = 0;
      std::memcpy(&id, reinterpret_cast<const char*>(buffer.data()) + first * element_bytes_,
                  static_cast<size_t>(element_bytes_));
      return OutsideVocabulary(element + static_cast<int64_t>(first), id, vocabulary);
    }
    element += static_cast<int64_t>(count);
    if (progress) MT_RETURN_IF_ERROR(progress(static_cast<int64_t>(got)));
  }
  if (element != tokens_) {
    return absl::DataLossError(absl::StrCat(path(), ": changed while it was read"));
  }
  scanned.hash = stream.Digest();
  return scanned;
}

absl::Status TokenFile::Read(int64_t first, int64_t count, int64_t vocabulary, int32_t* ids) const {
  const int64_t offset = data_offset_ + first * element_bytes_;
  if (element_bytes_ == 4) {
    MT_RETURN_IF_ERROR(reader_->ReadAt(offset, ids, static_cast<size_t>(count) * 4));
  } else {
    std::vector<uint16_t> narrow(static_cast<size_t>(count));
    MT_RETURN_IF_ERROR(reader_->ReadAt(offset, narrow.data(), narrow.size() * 2));
    std::copy(narrow.begin(), narrow.end(), ids);
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t id = static_cast<uint32_t>(ids[i]);
    if (id >= static_cast<uint64_t>(vocabulary)) {
      return OutsideVocabulary(first + i, id, vocabulary);
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
