// FileWordMaker tokenizes one data file into the words of a token stream (packing.h describes
// them).
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_FILE_WORDS_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_FILE_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/records/bad_records.h"
#include "engine/data/records/data_file_io.h"
#include "engine/data/records/record_reader.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/data/sequences/example.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Returns true if the file holds records, each of which is a document. All formats but `text` do,
// and `text` does in files of JSON, CSV and Parquet. Any other text file is one document. REQUIRES:
// the format is not `tokens`.
bool HoldsRecords(const DataFile& file);

// Describes a file's words. Kept beside them in the cache as JSON.
struct FileWordsMeta {
  int64_t documents = 0;
  int64_t largest_id = -1;
  int64_t turns_without_loss = 0;  // as DocumentEncoder counts them
  BadRecords bad;                  // their names lack the file's path

  std::string ToText() const;
  // Reads what ToText has written. Returns DataLoss for a text of another form. The checksums of
  // the cache show accidental damage only, so the text may be anything that a user with access has
  // written.
  static absl::StatusOr<FileWordsMeta> FromText(const std::string& text);
};

// Options for tokenizing files.
struct FileWordsOptions {
  DocumentEncoderOptions encoder;
  bool skip_bad_records = false;
  bool pairs = false;                      // records are pairs of answers
  size_t chunk_bytes = kRecordChunkBytes;  // what MakeRecordReader is given
  // Longer records are read (but those of Parquet) and tokenized one at a time in the whole
  // process, because each takes many times its bytes of memory meanwhile.
  size_t long_record_bytes = size_t{16} << 20;
};

// Makes the words of one file at a time. Not thread-safe.
class FileWordMaker {
 public:
  // Works on the threads of `pool`, or on the calling thread alone if it is null. The words do not
  // depend on the pool. The pool and what `options` points to must outlive the maker.
  FileWordMaker(const FileWordsOptions& options, ThreadPool* pool);

  // Appends the file's words to `writer`, and returns their description. `reader` has the file
  // open. `hash` is the XXH3-128 that the file's content had before. The hash of Parquet, which is
  // not read from front to back, is not compared. `progress` may be null. It is called with the
  // bytes of the file that are finished, and with 0 also from another thread, perhaps at the same
  // time. REQUIRES: the format is not `tokens`, and no loop of the pool calls Make.
  //
  // Returns InvalidArgument, naming the file and the place, for data that cannot be read and for a
  // file without a record. If bad records are skipped, a record that cannot be read is counted
  // instead, if the reader can go on behind it; a plain text that cannot be read still is an error.
  // Returns OutOfRange if an id is not below the vocabulary, and Aborted if the content is not that
  // of `hash`. Returns the errors of reading, of ParquetRecordReader::Open, of `writer` and of
  // `progress`. After an error nothing of what was appended may be used.
  absl::StatusOr<FileWordsMeta> Make(const DataFile& file, const DataFileReader& reader,
                                     const std::string& hash, CacheFileWriter* writer,
                                     const ByteProgress& progress);
  // Returns true if Make failed on a plain text because its bytes cannot be read or decompressed.
  bool unreadable() const { return unreadable_; }

 private:
  struct Pending {
    Record record;  // where it is; `json` is not used
    std::string json;
  };
  // Records that are tokenized at once.
  struct Batch {
    std::vector<Pending> records;
    int64_t bytes_read = 0;  // of the file
    bool more = true;        // others may follow
    absl::Status status;     // of reading behind the last record
    // Held if the last record is a long one: see TakeTurn.
    std::shared_ptr<void> turn;
  };
  class TurnTakingSource;
  struct Block {
    explicit Block(const DocumentEncoderOptions& options) : encoder(options) {}
    DocumentEncoder encoder;
    ExampleParser parser;
    Example example;
    std::vector<uint32_t> words;
    BadRecords bad;  // as in FileWordsMeta
    absl::Status status;
  };
  // The file that is being made.
  struct Current {
    const DataFile& file;
    CacheFileWriter* writer;
    const ByteProgress& progress;
    int64_t reported = 0;
    FileWordsMeta meta;
    // The reading thread's: the bytes read since the last record, and the turn, if it has it.
    size_t unbroken = 0;
    std::shared_ptr<void> turn;
  };

  void MakeBlocks();
  // Adds what the blocks counted to the description.
  void Count(FileWordsMeta& meta) const;
  // Takes the process's turn at long records, unless it is held already. Waits for it while the
  // progress says so.
  static absl::Status TakeTurn(Current& current);

  absl::Status AddParquet(const DataFileReader& reader, Current& current);
  // Adds a file of any other kind.
  absl::Status AddText(const DataFileReader& reader, const std::string& hash, Current& current);
  // `bytes_read` tells how many bytes of the file were read.
  absl::Status AddRecords(RecordReader& records, absl::FunctionRef<int64_t()> bytes_read,
                          Current& current);
  Batch ReadBatch(RecordReader& records, absl::FunctionRef<int64_t()> bytes_read,
                  Current& current) const;
  absl::Status EncodeBatch(const RecordReader& records, const std::vector<Pending>& batch,
                           Current& current);
  // Encodes a record of the batch behind the block's words, which stay as they are if it is bad.
  absl::Status EncodeRecord(const Pending& pending, const DataFile& file, Block& block);
  absl::Status AddPlainText(ByteSource* text, const HashingStream& raw, Current& current);
  // Encodes and writes the beginning of `rest` that no further text can change, and returns its
  // size. `end` says that nothing follows. `offset` is that of `rest` in the text.
  absl::StatusOr<size_t> EncodePiece(std::string_view rest, int64_t offset, bool end,
                                     Current& current);
  absl::Status Report(int64_t bytes_read, Current& current) const;
  void Run(int64_t blocks, absl::FunctionRef<void(int64_t)> work);

  const FileWordsOptions options_;
  ThreadPool* const pool_;
  std::deque<Block> blocks_;
  bool unreadable_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_FILE_WORDS_H_
