#include "engine/data/sequences/file_words.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/data/parquet/parquet_records.h"
#include "engine/job/data_format.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Records that are tokenised at once, for each thread. Their text and words are held in memory.
constexpr size_t kBatchBytesPerThread = size_t{1} << 20;
// Blocks of a batch that each thread gets on average: they take different times.
constexpr size_t kBlocksPerThread = 4;
constexpr size_t kReasonBytesMax = 300;
constexpr size_t kCharacterBytesMax = 4;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Time between two looks whether it is this one's turn at long records.
constexpr std::chrono::milliseconds kTurnPoll(50);

// The process's turn at long records.
struct Turn {
  Mutex mutex;
  CondVar freed;
  bool taken ABSL_GUARDED_BY(mutex) = false;
};

Turn& TheTurn() {
  static auto* const turn = new Turn;
  return *turn;
}

bool AwaitTurn() {
  Turn& turn = TheTurn();
  MutexLock lock(&turn.mutex);
  if (turn.taken) turn.freed.WaitFor(&turn.mutex, std::chrono::duration<double>(kTurnPoll).count());
  return !std::exchange(turn.taken, true);
}

void EndTurn() {
  Turn& turn = TheTurn();
  MutexLock lock(&turn.mutex);
  turn.taken = false;
  turn.freed.NotifyOne();
}

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

// These names are in files: another one would leave what was written before uncounted.
std::string FileWordsMeta::ToText() const {
  return nlohmann::json{{"documents", documents},
                        {"largest_id", largest_id},
                        {"turns_left_out", turns_without_loss},
                        {"bad_records", bad.count},
                        {"named", bad.named}}
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<FileWordsMeta> FileWordsMeta::FromText(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  FileWordsMeta meta;
  bool good = true;
  const auto take = [&](const char* name, int64_t least, int64_t* number) {
    const auto found = json.find(name);
    good &= found != json.end() && found->is_number_integer();
    if (good) *number = found->get<int64_t>();
    good &= *number >= least;
  };
  take("documents", 0, &meta.documents);
  take("largest_id", -1, &meta.largest_id);
  take("turns_left_out", 0, &meta.turns_without_loss);
  take("bad_records", 0, &meta.bad.count);
  const auto named = json.find("named");
  good &= named != json.end() && named->is_array();
  for (size_t i = 0; good && i < named->size(); ++i) {
    good = (*named)[i].is_string();
    if (good) meta.bad.named.push_back((*named)[i].get<std::string>());
  }
  good &= std::ssize(meta.bad.named) ==
          std::min<int64_t>(meta.bad.count, int64_t{BadRecords::kNamedMax});
  if (good) return meta;
  return absl::DataLossError("its description is not that of a file's words");
}

FileWordMaker::FileWordMaker(const FileWordsOptions& options, ThreadPool* pool)
    : options_(options), pool_(pool) {
  MakeBlocks();
}

void FileWordMaker::MakeBlocks() {
  const size_t threads = pool_ != nullptr ? static_cast<size_t>(pool_->threads()) : 1;
  const size_t blocks = threads == 1 ? 1 : kBlocksPerThread * threads;
  blocks_.clear();
  for (size_t i = 0; i < blocks; ++i) blocks_.emplace_back(options_.encoder);
}

void FileWordMaker::Count(FileWordsMeta& meta) const {
  for (const Block& block : blocks_) {
    meta.largest_id = std::max(meta.largest_id, block.encoder.largest_id());
    meta.turns_without_loss += block.encoder.turns_without_loss();
  }
}

absl::Status FileWordMaker::TakeTurn(Current& current) {
  if (current.turn != nullptr) return absl::OkStatus();
  while (!AwaitTurn()) {
    if (current.progress) MT_RETURN_IF_ERROR(current.progress(0));
  }
  current.turn = std::shared_ptr<void>(&TheTurn(), [](void*) { EndTurn(); });
  return absl::OkStatus();
}

// Takes the turn before more of a long record is held in memory.
class FileWordMaker::TurnTakingSource : public ByteSource {
 public:
  TurnTakingSource(ByteSource* source, size_t long_bytes, Current* current)
      : source_(source), long_bytes_(long_bytes), current_(current) {}
  absl::StatusOr<size_t> Read(void* to, size_t bytes) override {
    if (current_->unbroken > long_bytes_) MT_RETURN_IF_ERROR(TakeTurn(*current_));
    MT_ASSIGN_OR_RETURN(const size_t got, source_->Read(to, bytes));
    current_->unbroken += got;
    return got;
  }

 private:
  ByteSource* const source_;
  const size_t long_bytes_;
  Current* const current_;
};

void FileWordMaker::Run(int64_t blocks, absl::FunctionRef<void(int64_t)> work) {
  if (pool_ != nullptr) return pool_->ParallelFor(blocks, work);
  for (int64_t i = 0; i < blocks; ++i) work(i);
}

absl::Status FileWordMaker::Report(int64_t bytes_read, Current& current) const {
  const int64_t bytes = bytes_read - std::exchange(current.reported, bytes_read);
  return current.progress ? current.progress(bytes) : absl::OkStatus();
}

absl::StatusOr<FileWordsMeta> FileWordMaker::Make(const DataFile& file,
                                                  const DataFileReader& reader,
                                                  const std::string& hash, CacheFileWriter* writer,
                                                  const ByteProgress& progress) {
  Current current = {file, writer, progress, 0, {}, 0, nullptr};
  for (Block& block : blocks_) block.encoder.Restart();
  MT_RETURN_IF_ERROR(KindOfFile(file.path).content == FileContent::kParquet
                         ? AddParquet(reader, current)
                         : AddText(reader, hash, current));
  if (current.meta.documents == 0 && current.meta.bad.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": is empty; training data is needed"));
  }
  Count(current.meta);
  return std::move(current.meta);
}

absl::Status FileWordMaker::AddParquet(const DataFileReader& reader, Current& current) {
  const bool is_text = current.file.format == DataFormat::kText;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ParquetRecordReader> records,
                      ParquetRecordReader::Open(&reader, is_text ? "text" : ""));
  MT_RETURN_IF_ERROR(AddRecords(
      *records, [&] { return records->bytes_read(); }, current));
  return Report(reader.size(), current);  // columns that were not read are done, too
}

absl::Status FileWordMaker::AddText(const DataFileReader& reader, const std::string& hash,
                                    Current& current) {
  const std::string& path = current.file.path;
  HashingStream raw(&reader);
  ByteSource* text = &raw;
  std::unique_ptr<ByteSource> decompressed;
  const Compression compression = KindOfFile(path).compression;
  if (compression != Compression::kNone) {
    decompressed = Decompress(compression, &raw, path);
    text = decompressed.get();
  }
  if (HoldsRecords(current.file)) {
    TurnTakingSource source(text, options_.long_record_bytes, &current);
    const std::unique_ptr<RecordReader> records =
        MakeRecordReader(&source, path, options_.chunk_bytes);
    MT_RETURN_IF_ERROR(AddRecords(
        *records, [&] { return raw.offset(); }, current));
  } else {
    MT_RETURN_IF_ERROR(AddPlainText(text, raw, current));
  }
  const bool any = current.meta.documents > 0 || current.meta.bad.count > 0;
  if (!any || raw.Digest() == hash) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(path, ": changed while it was read; start again when it is complete"));
}

FileWordMaker::Batch FileWordMaker::ReadBatch(RecordReader& records,
                                              absl::FunctionRef<int64_t()> bytes_read,
                                              Current& current) const {
  const size_t bytes_max =
      kBatchBytesPerThread * (pool_ != nullptr ? static_cast<size_t>(pool_->threads()) : 1);
  Batch batch;
  Record record;
  // A batch ends with a long record.
  for (size_t bytes = 0; bytes < bytes_max && batch.more && current.turn == nullptr;) {
    const absl::StatusOr<bool> more = records.Next(&record);
    current.unbroken = 0;
    batch.status = more.status();
    batch.more = more.ok() && *more;
    if (batch.more && record.json.size() > options_.long_record_bytes) {
      batch.status = TakeTurn(current);
      batch.more = batch.status.ok();
    }
    if (!batch.more) break;
    batch.records.push_back({record, std::string(record.json)});
    bytes += record.json.size() + sizeof(Pending);
  }
  batch.bytes_read = bytes_read();
  batch.turn = std::move(current.turn);
  return batch;
}

// A batch is read while the one before it is encoded, if there are threads for it and that one has
// no long record: another is not taken meanwhile.
absl::Status FileWordMaker::AddRecords(RecordReader& records,
                                       absl::FunctionRef<int64_t()> bytes_read, Current& current) {
  const auto read = [&] { return ReadBatch(records, bytes_read, current); };
  const auto policy = pool_ != nullptr ? std::launch::async : std::launch::deferred;
  for (Batch batch = read();;) {
    // It is waited for on every way out, as it uses the reader.
    std::future<Batch> next;
    const auto now = batch.turn == nullptr ? policy : std::launch::deferred;
    if (batch.more) next = std::async(now, read);
    // An error in an earlier record is reported first, whatever the batches.
    MT_RETURN_IF_ERROR(EncodeBatch(records, batch.records, current));
    MT_RETURN_IF_ERROR(batch.status);
    MT_RETURN_IF_ERROR(Report(batch.bytes_read, current));
    const bool more = batch.more;
    if (batch.turn != nullptr) {
      // The memory is given back first, and then the turn.
      Count(current.meta);
      MakeBlocks();
      batch.records = {};
      batch.turn.reset();
    }
    if (!more) return absl::OkStatus();
    // It may wait for its turn: an error of the progress ends that.
    while (next.wait_for(kTurnPoll) == std::future_status::timeout) {
      if (current.progress) MT_RETURN_IF_ERROR(current.progress(0));
    }
    batch = next.get();
  }
}

absl::Status FileWordMaker::EncodeRecord(const Pending& pending, const DataFile& file,
                                         Block& block) {
  const size_t before = block.words.size();
  absl::Status status = pending.record.defect;
  if (status.ok()) {
    status = options_.pairs ? block.parser.ParsePair(file.format, pending.json, &block.example)
                            : block.parser.Parse(file.format, pending.json, &block.example);
  }
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
absl::Status FileWordMaker::EncodeBatch(const RecordReader& records,
                                        const std::vector<Pending>& batch, Current& current) {
  const size_t share = (batch.size() + blocks_.size() - 1) / blocks_.size();
  Run(static_cast<int64_t>(blocks_.size()), [&](int64_t index) {
    Block& block = blocks_[static_cast<size_t>(index)];
    block.words.clear();
    block.bad = {};
    block.status = absl::OkStatus();
    const size_t begin = std::min(batch.size(), static_cast<size_t>(index) * share);
    const size_t end = std::min(batch.size(), begin + share);
    for (size_t i = begin; i < end; ++i) {
      const absl::Status status = EncodeRecord(batch[i], current.file, block);
      if (status.ok()) continue;
      const std::string place = records.Place(batch[i].record);
      if (!options_.skip_bad_records || absl::IsOutOfRange(status)) {
        block.status = Prefixed(absl::StrCat(current.file.path, place), status);
        return;
      }
      block.bad.Add(absl::StrCat(place, ": ", status.message().substr(0, kReasonBytesMax)));
    }
  });
  current.meta.documents += static_cast<int64_t>(batch.size());
  for (Block& block : blocks_) {
    MT_RETURN_IF_ERROR(block.status);
    MT_RETURN_IF_ERROR(current.writer->Append(block.words.data(), block.words.size()));
    current.meta.bad.Add(block.bad);
    current.meta.documents -= block.bad.count;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> FileWordMaker::EncodePiece(std::string_view rest, int64_t offset, bool end,
                                                  Current& current) {
  Block& block = blocks_.front();
  block.words.clear();
  const absl::StatusOr<size_t> size = block.encoder.TextPiece(rest, end, &block.words, pool_);
  if (!size.ok()) {
    const size_t valid = Utf8ValidPrefix(rest);
    // The last character may not be whole.
    if (valid < rest.size() && (end || rest.size() - valid >= kCharacterBytesMax)) {
      return Prefixed(current.file.path, InvalidUtf8(offset + static_cast<int64_t>(valid)));
    }
    return Prefixed(current.file.path, size.status());
  }
  if (!end && *size == 0 && rest.size() >= kTextHeldBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        current.file.path, ": from byte ", offset, " on, the tokens of ", rest.size(),
        " bytes depend on what follows, and no more is held; break the run of white space, letters "
        "or marks that is there, or give the text as records (.jsonl)"));
  }
  // A text without a token is no document.
  if (!block.words.empty()) current.meta.documents = 1;
  MT_RETURN_IF_ERROR(current.writer->Append(block.words.data(), block.words.size()));
  return *size;
}

// The file is one document; a byte order mark is not part of it.
absl::Status FileWordMaker::AddPlainText(ByteSource* text, const HashingStream& raw,
                                         Current& current) {
  const size_t step = options_.encoder.text_piece_bytes *
                      (pool_ != nullptr ? static_cast<size_t>(pool_->threads()) : 1);
  std::string rest;    // read, and not yet encoded
  int64_t offset = 0;  // of `rest` in the text
  size_t enough = 0;   // the size of `rest` from which on it is encoded
  bool begun = false;  // the byte order mark was looked for
  for (bool end = false; !end;) {
    const size_t have = rest.size();
    // However many the threads, `rest` is looked at when it reaches the limit of what is held, and
    // is then refused or becomes shorter.
    const size_t want = std::min(step, kTextHeldBytesMax - have);
    rest.resize(have + want);
    size_t got = 0;
    while (got < want && !end) {
      const absl::StatusOr<size_t> more = text->Read(rest.data() + have + got, want - got);
      unreadable_ = !more.ok();
      MT_RETURN_IF_ERROR(more.status());
      got += *more;
      end = *more == 0;
    }
    rest.resize(have + got);
    if (!begun && (rest.size() >= kByteOrderMark.size() || end)) {
      begun = true;
      if (rest.starts_with(kByteOrderMark)) {
        offset = static_cast<int64_t>(kByteOrderMark.size());
        rest.erase(0, kByteOrderMark.size());
      }
    }
    if (end || (begun && rest.size() >= enough)) {
      MT_ASSIGN_OR_RETURN(const size_t size, EncodePiece(rest, offset, end, current));
      // What is looked at again and again grows twofold, so that the time stays linear.
      enough = size == 0 ? std::min(2 * rest.size(), kTextHeldBytesMax) : 0;
      rest.erase(0, size);
      offset += static_cast<int64_t>(size);
    }
    MT_RETURN_IF_ERROR(Report(raw.offset(), current));
  }
  if (current.meta.documents == 0) return absl::OkStatus();
  std::vector<uint32_t> words;
  blocks_.front().encoder.EndText(&words);
  return current.writer->Append(words.data(), words.size());
}

}  // namespace megatrain
