#include "engine/data/sequences/file_words.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/job/data_format.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Records that are tokenised at once, for each thread. Their text and words are held in memory.
constexpr size_t kBatchBytesPerThread = size_t{1} << 20;
// Blocks of a batch that each thread gets on average: they take different times.
constexpr size_t kBlocksPerThread = 4;
constexpr size_t kReasonBytesMax = 300;

absl::Status Prefixed(const std::string& where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

absl::Status InvalidUtf8(int64_t offset) {
  return absl::InvalidArgumentError(
      absl::StrCat("invalid UTF-8 at byte ", offset,
                   "; data files must be UTF-8 (iconv converts other encodings)"));
}

}  // namespace

bool HoldsRecords(const DataFile& file) {
  return file.format != DataFormat::kText || KindOfFile(file.path).content != FileContent::kText;
}

std::string FileWordsMeta::ToText() const {
  return nlohmann::json{{"documents", documents},
                        {"largest_id", largest_id},
                        {"bad_records", bad_records},
                        {"named", named}}
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

FileWordsMeta FileWordsMeta::FromText(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  FileWordsMeta meta;
  if (!json.is_object()) return meta;
  meta.documents = json.value("documents", int64_t{0});
  meta.largest_id = json.value("largest_id", int64_t{0});
  meta.bad_records = json.value("bad_records", int64_t{0});
  meta.named = json.value("named", std::vector<std::string>());
  return meta;
}

FileWordMaker::FileWordMaker(const FileWordsOptions& options, ThreadPool* pool)
    : options_(options), pool_(pool) {
  const size_t threads = pool != nullptr ? static_cast<size_t>(pool->threads()) : 1;
  const size_t blocks = threads == 1 ? 1 : kBlocksPerThread * threads;
  for (size_t i = 0; i < blocks; ++i) blocks_.emplace_back(options.encoder);
}

void FileWordMaker::Run(int64_t blocks, absl::FunctionRef<void(int64_t)> work) {
  if (pool_ != nullptr) return pool_->ParallelFor(blocks, work);
  for (int64_t i = 0; i < blocks; ++i) work(i);
}

absl::Status FileWordMaker::Report(Current& current) const {
  const int64_t bytes = current.raw.offset() - current.reported;
  current.reported = current.raw.offset();
  return current.progress ? current.progress(bytes) : absl::OkStatus();
}

absl::StatusOr<FileWordsMeta> FileWordMaker::Make(const DataFile& file,
                                                  const DataFileReader& reader,
                                                  const std::string& hash, CacheFileWriter* writer,
                                                  const ByteProgress& progress) {
  HashingStream raw(&reader);
  ByteSource* text = &raw;
  std::unique_ptr<ByteSource> decompressed;
  const Compression compression = KindOfFile(file.path).compression;
  if (compression != Compression::kNone) {
    decompressed = Decompress(compression, &raw, file.path);
    text = decompressed.get();
  }
  Current current = {file, raw, writer, progress, 0, {}};
  batch_.clear();
  pieces_.clear();
  for (Block& block : blocks_) block.encoder.ForgetLargestId();
  MT_RETURN_IF_ERROR(HoldsRecords(file) ? AddRecords(text, current) : AddPlainText(text, current));
  if (current.meta.documents == 0 && current.meta.bad_records == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": is empty; training data is needed"));
  }
  if (raw.Digest() != hash) {
    return absl::AbortedError(
        absl::StrCat(file.path, ": changed while it was read; start again when it is complete"));
  }
  for (const Block& block : blocks_) {
    current.meta.largest_id = std::max(current.meta.largest_id, block.encoder.largest_id());
  }
  return std::move(current.meta);
}

absl::Status FileWordMaker::AddRecords(ByteSource* text, Current& current) {
  const std::unique_ptr<RecordReader> records =
      MakeRecordReader(text, current.file.path, options_.chunk_bytes);
  const size_t batch_bytes_max =
      kBatchBytesPerThread * (pool_ != nullptr ? static_cast<size_t>(pool_->threads()) : 1);
  Record record;
  size_t batch_bytes = 0;
  while (true) {
    const absl::StatusOr<bool> more = records->Next(&record);
    // An error in an earlier record is reported first, whatever the batches.
    if (!more.ok()) MT_RETURN_IF_ERROR(EncodeBatch(*records, current));
    MT_RETURN_IF_ERROR(more.status());
    if (!*more) break;
    batch_.push_back({record, std::string(record.json)});
    batch_bytes += record.json.size() + sizeof(Pending);
    if (batch_bytes < batch_bytes_max) continue;
    MT_RETURN_IF_ERROR(EncodeBatch(*records, current));
    batch_bytes = 0;
    MT_RETURN_IF_ERROR(Report(current));
  }
  MT_RETURN_IF_ERROR(EncodeBatch(*records, current));
  return Report(current);
}

absl::Status FileWordMaker::EncodeRecord(const Pending& pending, const DataFile& file,
                                         Block& block) {
  const size_t before = block.words.size();
  absl::Status status = pending.record.defect;
  if (status.ok()) status = block.parser.Parse(file.format, pending.json, &block.example);
  if (!status.ok() && pending.record.defect.ok()) {
    const size_t valid = Utf8ValidPrefix(pending.json);
    if (valid < pending.json.size()) {
      status = InvalidUtf8(pending.record.offset + static_cast<int64_t>(valid));
    }
  }
  if (status.ok()) status = block.encoder.Encode(block.example, &block.words);
  if (!status.ok()) block.words.resize(before);
  return status;
}

// Each block of consecutive records is made by one thread, and the words are written in the
// records' order.
absl::Status FileWordMaker::EncodeBatch(const RecordReader& records, Current& current) {
  const size_t share = (batch_.size() + blocks_.size() - 1) / blocks_.size();
  Run(static_cast<int64_t>(blocks_.size()), [&](int64_t index) {
    Block& block = blocks_[static_cast<size_t>(index)];
    block.words.clear();
    block.bad.clear();
    block.status = absl::OkStatus();
    const size_t begin = std::min(batch_.size(), static_cast<size_t>(index) * share);
    const size_t end = std::min(batch_.size(), begin + share);
    for (size_t i = begin; i < end; ++i) {
      const absl::Status status = EncodeRecord(batch_[i], current.file, block);
      if (status.ok()) continue;
      const std::string place = records.Place(batch_[i].record);
      if (!options_.skip_bad_records || absl::IsOutOfRange(status)) {
        block.status = Prefixed(absl::StrCat(current.file.path, place), status);
        return;
      }
      block.bad.push_back(absl::StrCat(place, ": ", status.message().substr(0, kReasonBytesMax)));
    }
  });
  current.meta.documents += static_cast<int64_t>(batch_.size());
  batch_.clear();
  for (Block& block : blocks_) {
    MT_RETURN_IF_ERROR(block.status);
    MT_RETURN_IF_ERROR(current.writer->Append(block.words.data(), block.words.size()));
    FileWordsMeta& meta = current.meta;
    meta.bad_records += static_cast<int64_t>(block.bad.size());
    meta.documents -= static_cast<int64_t>(block.bad.size());
    for (std::string& bad : block.bad) {
      if (meta.named.size() < kNamedBadRecordsMax) meta.named.push_back(std::move(bad));
    }
  }
  return absl::OkStatus();
}

absl::Status FileWordMaker::EncodePieces(int64_t offset, bool first, Current& current) {
  std::vector<int64_t> offsets;
  for (const std::string& piece : pieces_) {
    offsets.push_back(offset);
    offset += static_cast<int64_t>(piece.size());
  }
  Run(static_cast<int64_t>(pieces_.size()), [&](int64_t index) {
    const size_t i = static_cast<size_t>(index);
    Block& block = blocks_[i];
    block.words.clear();
    const size_t valid = Utf8ValidPrefix(pieces_[i]);
    block.status = valid < pieces_[i].size()
                       ? InvalidUtf8(offsets[i] + static_cast<int64_t>(valid))
                       : block.encoder.TextPiece(pieces_[i], first && i == 0, &block.words);
  });
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (!blocks_[i].status.ok()) return Prefixed(current.file.path, blocks_[i].status);
    MT_RETURN_IF_ERROR(current.writer->Append(blocks_[i].words.data(), blocks_[i].words.size()));
  }
  pieces_.clear();
  return Report(current);
}

absl::StatusOr<bool> FileWordMaker::EncodeSettled(int64_t offset, bool first, bool end,
                                                  PieceState* state, std::string* rest,
                                                  Current& current) {
  constexpr size_t kCharacterBytesMax = 4;
  const size_t valid = Utf8ValidPrefix(*rest);
  if (valid < rest->size() && (end || valid + kCharacterBytesMax <= rest->size())) {
    return Prefixed(current.file.path, InvalidUtf8(offset + static_cast<int64_t>(valid)));
  }
  Block& block = blocks_.front();
  block.words.clear();
  const absl::StatusOr<size_t> settled =
      block.encoder.SettledPiece(*rest, first, end, state, &block.words);
  if (!settled.ok()) return Prefixed(current.file.path, settled.status());
  rest->erase(0, *settled);
  MT_RETURN_IF_ERROR(current.writer->Append(block.words.data(), block.words.size()));
  MT_RETURN_IF_ERROR(Report(current));
  return !block.words.empty();
}

// The file is one document; a byte order mark is not part of it.
absl::Status FileWordMaker::AddPlainText(ByteSource* text, Current& current) {
  const DocumentEncoder& encoder = blocks_.front().encoder;
  std::string rest;           // read, and not yet in a piece
  int64_t pieces_offset = 0;  // of the first piece in the text
  int64_t rest_offset = 0;    // of `rest` in the text
  bool first = true;          // nothing was tokenised yet
  bool begun = false;         // the byte order mark was looked for
  PieceState state;           // for tokenizers without safe cuts
  for (bool end = false; !end;) {
    // A longer rest is read on in longer steps, so that looking for a cut stays linear.
    const size_t have = rest.size();
    const size_t step = std::max(options_.encoder.text_piece_bytes, have);
    rest.resize(have + step);
    size_t got = 0;
    while (got < step && !end) {
      MT_ASSIGN_OR_RETURN(const size_t more, text->Read(rest.data() + have + got, step - got));
      got += more;
      end = more == 0;
    }
    rest.resize(have + got);
    if (rest.size() > kRecordBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(current.file.path, ": has no line end at which it could be cut within ",
                       FormatBytes(static_cast<int64_t>(kRecordBytesMax)),
                       "; a file of format text is one document; .jsonl holds many"));
    }
    if (!begun && absl::StartsWith(rest, "\xef\xbb\xbf")) {
      rest.erase(0, 3);
      rest_offset = pieces_offset = 3;
    }
    begun = true;
    if (!encoder.has_safe_cuts()) {
      const size_t before = rest.size();
      MT_ASSIGN_OR_RETURN(const bool any,
                          EncodeSettled(rest_offset, first, end, &state, &rest, current));
      rest_offset += static_cast<int64_t>(before - rest.size());
      first = first && !any;
      continue;
    }
    const size_t cut = end ? rest.size() : encoder.SafeCut(rest);
    if (cut > 0) {
      pieces_.push_back(rest.substr(0, cut));
      rest.erase(0, cut);
      rest_offset += static_cast<int64_t>(cut);
    }
    if (pieces_.empty() || (!end && pieces_.size() < blocks_.size())) continue;
    MT_RETURN_IF_ERROR(EncodePieces(pieces_offset, first, current));
    pieces_offset = rest_offset;
    first = first && blocks_.front().words.empty();
  }
  if (first) return absl::OkStatus();
  std::vector<uint32_t> words;
  encoder.EndText(false, &words);
  ++current.meta.documents;
  return current.writer->Append(words.data(), words.size());
}

}  // namespace megatrain
