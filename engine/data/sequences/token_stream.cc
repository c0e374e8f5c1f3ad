#include "engine/data/sequences/token_stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/data/sequences/packing.h"

namespace megatrain {
namespace {

// Part of every key: a change of what the words mean or how they are made changes it.
constexpr char kStreamVersion[] = "megatrain words 1";
// Rises when records are read in another way, so that their words are made again. The stream's key
// stays, so that runs that began with the words before go on.
constexpr char kCacheVersion[] = "2";

// Smaller files are made by one thread each. One of this size takes a few seconds.
constexpr int64_t kSmallFileBytes = int64_t{8} << 20;
// Time between two calls of the progress while files are made side by side.
constexpr std::chrono::milliseconds kProgressInterval(200);

// A file's part of the key.
std::string FileKey(const DataFile& file, const std::string& hash,
                    const FileWordsOptions& options) {
  const DocumentEncoderOptions& encoder = options.encoder;
  const FileKind kind = KindOfFile(file.path);
  // A file of format preference may hold texts and conversations.
  const bool is_pairs = file.format == DataFormat::kPreference;
  const bool is_text = file.format == DataFormat::kText;
  std::string text = absl::StrCat(options.pairs ? "pairs " : "", DataFormatName(file.format), " ");
  if (kind.compression != Compression::kNone) {
    absl::StrAppend(&text, kind.compression == Compression::kGzip ? "gzip " : "zstd ");
  }
  absl::StrAppend(&text,
                  !HoldsRecords(file)                     ? "plain "
                  : kind.content == FileContent::kCsv     ? "csv "
                  : kind.content == FileContent::kParquet ? "parquet "
                                                          : "records ",
                  hash, "\n");
  if (!is_text && encoder.chat_template != nullptr) {
    absl::StrAppend(&text, encoder.chat_template->fingerprint(), "\n");
  }
  const std::vector<int32_t>& before = encoder.around.before;
  const std::vector<int32_t>& after = encoder.around.after;
  if (!before.empty() && (is_text || is_pairs || encoder.around_chats)) {
    absl::StrAppend(&text, "before ", absl::StrJoin(before, " "), "\n");
  }
  if ((is_text || is_pairs) && !after.empty() && after != std::vector<int32_t>{encoder.eos_id}) {
    absl::StrAppend(&text, "after ", absl::StrJoin(after, " "), "\n");
  }
  return text;
}

std::string Key(const std::string& file_keys, const DocumentEncoderOptions& encoder) {
  return HashText(absl::StrCat(kStreamVersion, "\n", encoder.tokenizer->fingerprint(), "\n", "eos ",
                               encoder.eos_id, "\n", file_keys));
}

// Counts bytes on several threads, and calls the progress on the thread that made it. After an
// error of the progress every call returns an error.
class SharedProgress {
 public:
  explicit SharedProgress(const ByteProgress& progress)
      : progress_(progress), owner_(std::this_thread::get_id()) {}

  absl::Status Add(int64_t bytes) {
    pending_ += bytes;
    if (stopped_) return absl::CancelledError("abandoned");
    if (std::this_thread::get_id() != owner_ || !progress_) return absl::OkStatus();
    error_ = progress_(pending_.exchange(0));
    stopped_ = !error_.ok();
    return error_;
  }
  // The error of the progress. REQUIRES: the calling thread made this.
  const absl::Status& error() const { return error_; }

 private:
  const ByteProgress& progress_;
  const std::thread::id owner_;
  std::atomic<int64_t> pending_{0};
  std::atomic<bool> stopped_{false};
  absl::Status error_;
};

// The words of one file, made or found.
struct Prepared {
  std::unique_ptr<CacheFile> words;
  FileWordsMeta meta;
  std::string key;  // FileKey
};

// Makes or finds the words of files, with what they have in common.
class Preparer {
 public:
  Preparer(const TokenStreamOptions& options, const ByteProgress& progress)
      : options_(options), progress_(progress) {}

  // Uses the threads of `pool`, or the calling thread alone if it is null.
  absl::StatusOr<Prepared> Prepare(const DataFile& file, ThreadPool* pool) const {
    // Examined before it is read: what is then changed or replaced does not bear this hash.
    const absl::Time now = absl::Now();
    MT_ASSIGN_OR_RETURN(const FileInfo info, options_.files->Examine(file.path));
    MT_ASSIGN_OR_RETURN(const std::string hash, Hash(file.path, info, now));
    Prepared prepared;
    prepared.key = FileKey(file, hash, options_.words);
    const std::string key =
        HashText(absl::StrCat(kCacheVersion, " ", Key(prepared.key, options_.words.encoder)));
    const std::string name = absl::StrCat("words-", key, ".cache");
    const std::string path = absl::StrCat(options_.cache_directory, "/", name);
    // A second round finds what another process, or this one, has just made.
    for (int round = 0;; ++round) {
      // Before it is opened: what another process makes then is not replaced.
      const absl::StatusOr<FileInfo> before = options_.files->Examine(path);
      absl::StatusOr<std::unique_ptr<CacheFile>> cache =
          CacheFile::Open(options_.cache_directory, name, key, sizeof(uint32_t), progress_,
                          options_.files, options_.verify);
      if (absl::IsCancelled(cache.status())) return cache.status();
      absl::StatusOr<FileWordsMeta> meta =
          cache.ok() ? FileWordsMeta::FromText((*cache)->meta()) : cache.status();
      absl::Status error = meta.status();
      if (meta.ok()) {
        prepared.meta = *std::move(meta);
        prepared.words = *std::move(cache);
        // Else it is of a model with a larger vocabulary, or without the bad records; making it
        // again finds where the id or the record is.
        if (prepared.meta.largest_id < options_.words.encoder.vocabulary &&
            (prepared.meta.bad.count == 0 || options_.words.skip_bad_records)) {
          if (round == 0) MT_RETURN_IF_ERROR(progress_(info.bytes));
          return prepared;
        }
        error = absl::AbortedError("another job makes it of the same data in another way");
      }
      if (round == 3) {
        return absl::Status(
            error.code(),
            absl::StrCat(path, ": was just made and cannot be read: ", error.message()));
      }
      MT_RETURN_IF_ERROR(MakeWords(file, info, hash, name, key, before, pool));
    }
  }

 private:
  // The hash that is remembered of the file, or else that of its content.
  absl::StatusOr<std::string> Hash(const std::string& path, const FileInfo& info,
                                   absl::Time now) const {
    if (options_.hashes != nullptr) {
      if (const std::optional<FileHash> known = options_.hashes->Find(info)) return known->hash;
    }
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<DataFileReader> reader,
                        DataFileReader::Open(path, options_.files));
    MT_ASSIGN_OR_RETURN(const std::string hash,
                        HashDataFile(*reader, [this](int64_t) { return progress_(0); }));
    if (options_.hashes != nullptr) options_.hashes->Remember(info, {.hash = hash}, now);
    return hash;
  }

  absl::Status MakeWords(const DataFile& file, const FileInfo& info, const std::string& hash,
                         const std::string& name, const std::string& key,
                         const absl::StatusOr<FileInfo>& before, ThreadPool* pool) const {
    MT_ASSIGN_OR_RETURN(const std::unique_ptr<DataFileReader> reader,
                        DataFileReader::Open(file.path, options_.files));
    const auto create = [&] {
      return CacheFileWriter::Create(options_.cache_directory, name, key, sizeof(uint32_t),
                                     progress_, options_.files, before);
    };
    MT_ASSIGN_OR_RETURN(std::unique_ptr<CacheFileWriter> writer, create());
    if (writer == nullptr) return absl::OkStatus();  // another one made it
    FileWordMaker maker(options_.words, pool);
    absl::StatusOr<FileWordsMeta> meta = maker.Make(file, *reader, hash, writer.get(), progress_);
    if (absl::IsInvalidArgument(meta.status()) && options_.words.skip_bad_records &&
        !HoldsRecords(file) && !maker.unreadable()) {
      // The document is the bad record.
      writer.reset();
      MT_ASSIGN_OR_RETURN(writer, create());
      if (writer == nullptr) return absl::OkStatus();
      const std::string why(meta.status().message());
      meta = FileWordsMeta();
      meta->bad.Add(why.substr(0, file.path.size()) == file.path ? why.substr(file.path.size())
                                                                 : absl::StrCat(": ", why));
    }
    MT_RETURN_IF_ERROR(meta.status());
    if (KindOfFile(file.path).content == FileContent::kParquet) {
      MT_ASSIGN_OR_RETURN(const FileInfo now, options_.files->Examine(file.path));
      if (now.device != info.device || now.inode != info.inode || now.bytes != info.bytes ||
          now.modified != info.modified || now.changed != info.changed) {
        return absl::AbortedError(absl::StrCat(
            file.path, ": changed while it was read; start again when it is complete"));
      }
    }
    MT_RETURN_IF_ERROR(writer->Finish(meta->ToText()));
    // A hash that is not remembered costs another reading of its file, and nothing else.
    if (options_.hashes != nullptr) options_.hashes->SaveIfDue().IgnoreError();
    return absl::OkStatus();
  }

  const TokenStreamOptions& options_;
  const ByteProgress& progress_;
};

absl::Status AsInvalid(const absl::Status& status) {
  return absl::IsOutOfRange(status) ? absl::InvalidArgumentError(status.message()) : status;
}

// Prepares files[begin, end), each by one thread. Sets results[begin, end), or returns the error of
// the first bad one. If `long_files`, the calling thread only calls `progress`; else it works too.
absl::Status PrepareSideBySide(absl::Span<const DataFile> files, size_t begin, size_t end,
                               bool long_files, const Preparer& preparer,
                               const ByteProgress& progress, ThreadPool* pool,
                               std::vector<Prepared>* results) {
  // Files behind one that failed are not begun; those before it are.
  std::atomic<size_t> failed{end};
  std::vector<absl::Status> errors(end - begin);
  const auto prepare = [&](int64_t block) {
    const size_t i = begin + static_cast<size_t>(block);
    if (i > failed) return;
    absl::StatusOr<Prepared> prepared = preparer.Prepare(files[i], nullptr);
    if (prepared.ok()) {
      (*results)[i] = *std::move(prepared);
      return;
    }
    errors[i - begin] = prepared.status();
    size_t first = failed;
    while (i < first && !failed.compare_exchange_weak(first, i)) {
    }
  };
  const auto all = [&] { pool->ParallelFor(static_cast<int64_t>(end - begin), prepare); };
  if (long_files) {
    std::future<void> work = std::async(std::launch::async, all);
    // An error of the progress ends the work, too.
    while (work.wait_for(kProgressInterval) != std::future_status::ready) progress(0).IgnoreError();
  } else {
    all();
  }
  return failed < end ? errors[failed - begin] : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenStream>> TokenStream::Open(absl::Span<const DataFile> files,
                                                               const TokenStreamOptions& options,
                                                               const ByteProgress& progress) {
  SharedProgress shared(progress);
  const ByteProgress counted = [&shared](int64_t bytes) { return shared.Add(bytes); };
  const Preparer preparer(options, counted);
  ThreadPool pool(options.threads);
  std::vector<Prepared> results(files.size());
  std::vector<bool> is_small(files.size());
  int long_texts = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const absl::StatusOr<FileInfo> info = options.files->Examine(files[i].path);
    is_small[i] = info.ok() && info->bytes < kSmallFileBytes;
    if (!is_small[i] && !HoldsRecords(files[i])) ++long_texts;
  }
  // The files' order is kept, so that the error of the first bad one is returned.
  for (size_t begin = 0; begin < files.size();) {
    size_t end = begin;
    bool long_files = false;
    for (; end < files.size(); ++end) {
      if (is_small[end]) continue;
      // All threads work on one file at a time, unless there are enough plain texts for them: those
      // made side by side do not wait for each other.
      if (HoldsRecords(files[end]) || long_texts < options.threads) break;
      long_files = true;
    }
    absl::Status status;
    if (end > begin + 1) {
      status = PrepareSideBySide(files, begin, end, long_files, preparer, counted, &pool, &results);
    } else {
      end = begin + 1;
      absl::StatusOr<Prepared> prepared = preparer.Prepare(files[begin], &pool);
      if (prepared.ok()) results[begin] = *std::move(prepared);
      status = prepared.status();
    }
    MT_RETURN_IF_ERROR(shared.error());
    MT_RETURN_IF_ERROR(AsInvalid(status));
    begin = end;
  }
  MT_RETURN_IF_ERROR(shared.Add(0));

  std::unique_ptr<TokenStream> stream(new TokenStream(options.words.encoder.vocabulary));
  std::string keys;
  for (size_t i = 0; i < files.size(); ++i) {
    Prepared& prepared = results[i];
    keys += prepared.key;
    stream->documents_ += prepared.meta.documents;
    stream->turns_without_loss_ += prepared.meta.turns_without_loss;
    stream->bad_records_.Add(prepared.meta.bad, files[i].path);
    const int64_t words = prepared.words->elements();
    if (words > 0) stream->parts_.push_back({stream->words_, std::move(prepared.words)});
    stream->words_ += words;
  }
  stream->key_ = Key(keys, options.words.encoder);
  return stream;
}

absl::Status TokenStream::Read(int64_t first, int64_t count, uint32_t* words) const {
  if (count == 0) return absl::OkStatus();
  auto part = std::upper_bound(parts_.begin(), parts_.end(), first,
                               [](int64_t value, const Part& p) { return value < p.first; });
  for (--part; count > 0; ++part) {
    const int64_t inside = first - part->first;
    const int64_t take = std::min(count, part->words->elements() - inside);
    MT_RETURN_IF_ERROR(part->words->Read(inside, take, words));
    for (int64_t i = 0; i < take; ++i) {
      if ((words[i] & kTokenMask) < vocabulary_) continue;
      return absl::DataLossError(absl::StrCat("word ", first + i, " of the prepared data is token ",
                                              words[i] & kTokenMask,
                                              ", which is not below the vocabulary"));
    }
    first += take;
    count -= take;
    words += take;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
