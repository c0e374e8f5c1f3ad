#include "engine/data/sequences/token_stream.h"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/data/sequences/example.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Part of every key: a change of what the words mean or how they are made changes it.
constexpr char kStreamVersion[] = "megatrain words 1";

// Records that are tokenised at once, by all threads. Their text and words are held in memory.
constexpr size_t kBatchBytes = size_t{4} << 20;
// Blocks of a batch that each thread gets on average: they take different times.
constexpr size_t kBlocksPerThread = 4;

absl::Status Prefixed(const std::string& where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

absl::Status InvalidUtf8(const std::string& path, int64_t offset) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": invalid UTF-8 at byte ", offset,
                   "; data files must be UTF-8 (iconv converts other encodings)"));
}

// Makes the words of all files, one file at a time.
class StreamMaker {
 public:
  StreamMaker(const TokenStreamOptions& options, const ByteProgress& progress,
              CacheFileWriter* writer)
      : options_(options), progress_(progress), writer_(writer), pool_(options.threads) {
    const size_t blocks =
        options.threads == 1 ? 1 : kBlocksPerThread * static_cast<size_t>(options.threads);
    for (size_t i = 0; i < blocks; ++i) blocks_.emplace_back(options.encoder);
  }

  // `hash` is what the file's content had when the key was made.
  absl::Status Add(const DataFile& file, const DataFileReader& reader, const std::string& hash) {
    HashingStream stream(&reader);
    const int64_t before = documents_;
    MT_RETURN_IF_ERROR(HoldsJsonRecords(file) ? AddRecords(file, &stream)
                                              : AddPlainText(file, &stream));
    if (documents_ == before) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": is empty; training data is needed"));
    }
    if (stream.Digest() != hash) {
      return absl::AbortedError(
          absl::StrCat(file.path, ": changed while it was read; start again when it is complete"));
    }
    return absl::OkStatus();
  }

  int64_t documents() const { return documents_; }
  int64_t turns_left_out() const {
    int64_t turns = 0;
    for (const Block& block : blocks_) turns += block.encoder.turns_left_out();
    return turns;
  }
  int64_t largest_id() const {
    int64_t largest = -1;
    for (const Block& block : blocks_) largest = std::max(largest, block.encoder.largest_id());
    return largest;
  }

 private:
  struct Pending {
    JsonRecord record;  // where it is; its text is gone
    Example example;
  };
  struct Block {
    explicit Block(const DocumentEncoderOptions& options) : encoder(options) {}
    DocumentEncoder encoder;
    std::vector<uint32_t> words;
    absl::Status status;
    size_t failed = 0;  // in the batch
  };

  absl::Status Write() {
    MT_RETURN_IF_ERROR(writer_->Append(words_.data(), words_.size()));
    words_.clear();
    return absl::OkStatus();
  }

  absl::Status Report(const HashingStream& stream, int64_t* reported) const {
    const int64_t bytes = stream.offset() - *reported;
    *reported = stream.offset();
    return progress_ ? progress_(bytes) : absl::OkStatus();
  }

  absl::Status AddRecords(const DataFile& file, HashingStream* stream) {
    JsonRecordReader records(stream, file.path, options_.chunk_bytes);
    ExampleParser parser;
    JsonRecord record;
    size_t batch_bytes = 0;
    int64_t reported = 0;
    while (true) {
      MT_ASSIGN_OR_RETURN(const bool more, records.Next(&record));
      if (!more) break;
      Pending pending;
      pending.record = record;
      const absl::Status status = parser.Parse(file.format, record.json, &pending.example);
      if (!status.ok()) {
        // An error in an earlier record is reported first, whatever the batches.
        MT_RETURN_IF_ERROR(EncodeBatch(records));
        const size_t valid = Utf8ValidPrefix(record.json);
        if (valid < record.json.size()) {
          return InvalidUtf8(records.Where(record), record.offset + static_cast<int64_t>(valid));
        }
        return Prefixed(records.Where(record), status);
      }
      batch_.push_back(std::move(pending));
      batch_bytes += record.json.size();
      if (batch_bytes < kBatchBytes) continue;
      MT_RETURN_IF_ERROR(EncodeBatch(records));
      batch_bytes = 0;
      MT_RETURN_IF_ERROR(Report(*stream, &reported));
    }
    MT_RETURN_IF_ERROR(EncodeBatch(records));
    return Report(*stream, &reported);
  }

  // Tokenises the batch, each block of consecutive records by one thread, and writes the words in
  // the records' order.
  absl::Status EncodeBatch(const JsonRecordReader& records) {
    const size_t share = (batch_.size() + blocks_.size() - 1) / blocks_.size();
    pool_.ParallelFor(static_cast<int64_t>(blocks_.size()), [&](int64_t index) {
      Block& block = blocks_[static_cast<size_t>(index)];
      block.words.clear();
      block.status = absl::OkStatus();
      const size_t begin = std::min(batch_.size(), static_cast<size_t>(index) * share);
      const size_t end = std::min(batch_.size(), begin + share);
      for (size_t i = begin; i < end && block.status.ok(); ++i) {
        block.status = block.encoder.Encode(batch_[i].example, &block.words);
        block.failed = i;
      }
    });
    for (Block& block : blocks_) {
      if (!block.status.ok()) {
        return Prefixed(records.Where(batch_[block.failed].record), block.status);
      }
      MT_RETURN_IF_ERROR(writer_->Append(block.words.data(), block.words.size()));
    }
    documents_ += static_cast<int64_t>(batch_.size());
    batch_.clear();
    return absl::OkStatus();
  }

  // The file is one document; a byte order mark is not part of it.
  absl::Status AddPlainText(const DataFile& file, HashingStream* stream) {
    const size_t piece_bytes = options_.encoder.text_piece_bytes;
    DocumentEncoder& encoder = blocks_.front().encoder;
    std::string buffer;
    int64_t buffer_offset = 0;  // of buffer[0] in the file
    int64_t reported = 0;
    bool empty = true;   // no token was found yet
    size_t enough = 0;   // the size of the buffer from which on it is tokenised
    bool begun = false;  // the byte order mark was looked for
    while (true) {
      const size_t have = buffer.size();
      buffer.resize(have + piece_bytes);
      MT_ASSIGN_OR_RETURN(const size_t got, stream->Read(buffer.data() + have, piece_bytes));
      buffer.resize(have + got);
      const bool end = got < piece_bytes;
      if (!begun && (buffer.size() >= 3 || end)) {
        begun = true;
        if (absl::StartsWith(buffer, "\xef\xbb\xbf")) {
          buffer.erase(0, 3);
          buffer_offset = 3;
        }
      }
      if (end || buffer.size() >= enough) {
        // The last character may not be whole.
        const size_t valid = Utf8ValidPrefix(buffer);
        if (valid < buffer.size() && (end || buffer.size() - valid >= 4)) {
          return InvalidUtf8(file.path, buffer_offset + static_cast<int64_t>(valid));
        }
        const absl::StatusOr<size_t> size = encoder.TextPiece(buffer, end, &words_);
        if (!size.ok()) return Prefixed(file.path, size.status());
        empty = empty && words_.empty();
        MT_RETURN_IF_ERROR(Write());
        enough = *size == 0 ? 2 * buffer.size() : 0;
        if (*size == 0 && buffer.size() > kTextHeldBytesMax) {
          return absl::InvalidArgumentError(absl::StrCat(
              file.path, ": from byte ", buffer_offset, " on, ", buffer.size(),
              " bytes have no place at which a token must end; put white space into the text"));
        }
        buffer.erase(0, *size);
        buffer_offset += static_cast<int64_t>(*size);
      }
      MT_RETURN_IF_ERROR(Report(*stream, &reported));
      if (end) break;
    }
    if (empty) return absl::OkStatus();
    encoder.EndText(&words_);
    ++documents_;
    return Write();
  }

  const TokenStreamOptions& options_;
  const ByteProgress& progress_;
  CacheFileWriter* const writer_;
  ThreadPool pool_;
  std::deque<Block> blocks_;
  std::vector<Pending> batch_;
  std::vector<uint32_t> words_;  // of a plain text's piece
  int64_t documents_ = 0;
};

struct StreamMeta {
  int64_t documents = 0;
  int64_t largest_id = 0;
  int64_t turns_left_out = 0;
};

std::string ToText(const StreamMeta& meta) {
  return nlohmann::json{{"documents", meta.documents},
                        {"largest_id", meta.largest_id},
                        {"turns_left_out", meta.turns_left_out}}
      .dump();
}

// The text is checksummed, so it is what ToText wrote.
StreamMeta FromText(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  StreamMeta meta;
  if (json.is_object()) {
    meta.documents = json.value("documents", int64_t{0});
    meta.largest_id = json.value("largest_id", int64_t{0});
    meta.turns_left_out = json.value("turns_left_out", int64_t{0});
  }
  return meta;
}

std::string StreamKey(absl::Span<const DataFile> files, const std::vector<std::string>& hashes,
                      const DocumentEncoderOptions& encoder) {
  std::string text = absl::StrCat(kStreamVersion, "\n", encoder.tokenizer->fingerprint(), "\n",
                                  "eos ", encoder.eos_id, "\n");
  for (size_t i = 0; i < files.size(); ++i) {
    absl::StrAppend(&text, DataFormatName(files[i].format), " ",
                    HoldsJsonRecords(files[i]) ? "records " : "plain ", hashes[i], "\n");
    if (files[i].format == DataFormat::kText) continue;
    absl::StrAppend(&text, encoder.chat_template->fingerprint(), "\n");
  }
  return HashText(text);
}

}  // namespace

bool HoldsJsonRecords(const DataFile& file) {
  if (file.format != DataFormat::kText) return true;
  const std::string lower = absl::AsciiStrToLower(file.path);
  return absl::EndsWith(lower, ".jsonl") || absl::EndsWith(lower, ".json");
}

absl::StatusOr<std::unique_ptr<TokenStream>> TokenStream::Open(absl::Span<const DataFile> files,
                                                               const TokenStreamOptions& options,
                                                               const ByteProgress& progress) {
  std::vector<std::unique_ptr<DataFileReader>> readers;
  std::vector<std::string> hashes;
  int64_t bytes = 0;
  for (const DataFile& file : files) {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<DataFileReader> reader,
                        DataFileReader::Open(file.path, options.files));
    MT_ASSIGN_OR_RETURN(std::string hash, HashDataFile(*reader, progress));
    bytes += reader->size();
    readers.push_back(std::move(reader));
    hashes.push_back(std::move(hash));
  }
  const std::string key = StreamKey(files, hashes, options.encoder);
  const std::string name = absl::StrCat("words-", key, ".cache");

  // A second round finds what another process has just made.
  for (int round = 0; round < 2; ++round) {
    absl::StatusOr<std::unique_ptr<CacheFile>> cache = CacheFile::Open(
        options.cache_directory, name, key, sizeof(uint32_t), progress, options.files);
    if (absl::IsCancelled(cache.status())) return cache.status();
    if (cache.ok()) {
      const StreamMeta meta = FromText((*cache)->meta());
      // Else it is of a model with a larger vocabulary; making it again finds where the id is.
      if (meta.largest_id < options.encoder.vocabulary) {
        if (progress) MT_RETURN_IF_ERROR(progress(bytes));
        return std::unique_ptr<TokenStream>(
            new TokenStream(*std::move(cache), key, meta.documents, meta.turns_left_out));
      }
    }
    MT_ASSIGN_OR_RETURN(std::unique_ptr<CacheFileWriter> writer,
                        CacheFileWriter::Create(options.cache_directory, name, key,
                                                sizeof(uint32_t), progress, options.files));
    if (writer == nullptr) continue;
    StreamMaker maker(options, progress, writer.get());
    for (size_t i = 0; i < files.size(); ++i) {
      MT_RETURN_IF_ERROR(maker.Add(files[i], *readers[i], hashes[i]));
    }
    MT_RETURN_IF_ERROR(
        writer->Finish(ToText({maker.documents(), maker.largest_id(), maker.turns_left_out()})));
    writer.reset();
    MT_ASSIGN_OR_RETURN(std::unique_ptr<CacheFile> made,
                        CacheFile::Open(options.cache_directory, name, key, sizeof(uint32_t),
                                        progress, options.files));
    return std::unique_ptr<TokenStream>(
        new TokenStream(std::move(made), key, maker.documents(), maker.turns_left_out()));
  }
  return absl::DataLossError(absl::StrCat(options.cache_directory, "/", name,
                                          ": was made by another process and cannot be read"));
}

}  // namespace megatrain
