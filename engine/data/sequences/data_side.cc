#include "engine/data/sequences/data_side.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

bool IsTokens(const DataFile& file) { return file.format == DataFormat::kTokens; }

}  // namespace

absl::StatusOr<std::unique_ptr<DataSide>> DataSide::Open(absl::Span<const DataFile> files,
                                                         const DataSideOptions& options,
                                                         const ByteProgress& progress) {
  std::unique_ptr<DataSide> side(new DataSide(options));
  side->key_ = absl::StrCat("length ", options.packing.sequence_length, " pad ", options.pad_id);
  for (size_t begin = 0; begin < files.size();) {
    size_t end = begin + 1;
    while (end < files.size() && IsTokens(files[end]) == IsTokens(files[begin])) ++end;
    const absl::Span<const DataFile> run = files.subspan(begin, end - begin);
    MT_RETURN_IF_ERROR(IsTokens(run[0]) ? side->AddTokens(run, progress)
                                        : side->AddDocuments(run, progress));
    begin = end;
  }
  side->key_ = HashText(side->key_);
  return side;
}

absl::Status DataSide::AddDocuments(absl::Span<const DataFile> files,
                                    const ByteProgress& progress) {
  Run run;
  run.first_sequence = report_.sequences;
  MT_ASSIGN_OR_RETURN(run.stream, TokenStream::Open(files, options_.stream, progress));
  MT_ASSIGN_OR_RETURN(
      run.index,
      SequenceIndex::Open(run.stream.get(), options_.packing, options_.stream.cache_directory,
                          progress, options_.stream.files, options_.stream.verify));
  const PackingCounts& counts = run.index->counts();
  report_.documents += run.stream->documents();
  report_.turns_without_loss += run.stream->turns_without_loss();
  report_.tokens += counts.tokens;
  report_.sequences += counts.sequences;
  report_.truncated_examples += counts.truncated_examples;
  report_.examples_without_target += counts.examples_without_target;
  report_.bad_records.Add(run.stream->bad_records());
  absl::StrAppend(&key_, "\ndocuments ", run.stream->key(),
                  options_.packing.packing ? " packed" : " unpacked");
  runs_.push_back(std::move(run));
  return absl::OkStatus();
}

absl::Status DataSide::AddTokens(absl::Span<const DataFile> files, const ByteProgress& progress) {
  Run run;
  run.first_sequence = report_.sequences;
  int64_t tokens = 0;
  for (const DataFile& file : files) {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<TokenFile> opened,
                        TokenFile::Open(file, options_.stream.files));
    MT_ASSIGN_OR_RETURN(const std::string hash, ScanOnce(*opened, progress));
    if (opened->tokens() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": is empty; training data is needed"));
    }
    absl::StrAppend(&key_, "\ntokens ", opened->element_bytes(), " ", hash);
    const int64_t begin = tokens;
    tokens += opened->tokens();
    run.files.emplace_back(begin, std::move(opened));
  }
  absl::StrAppend(&key_, "\nend");
  const int64_t sequences = tokens / options_.packing.sequence_length;
  const int64_t kept = sequences * options_.packing.sequence_length;
  report_.documents += static_cast<int64_t>(files.size());
  report_.tokens += kept;
  report_.sequences += sequences;
  report_.dropped_tokens += tokens - kept;
  runs_.push_back(std::move(run));
  return absl::OkStatus();
}

absl::StatusOr<std::string> DataSide::ScanOnce(const TokenFile& file,
                                               const ByteProgress& progress) const {
  const int64_t vocabulary = options_.stream.words.encoder.vocabulary;
  FileHashes* const hashes = options_.stream.hashes;
  const absl::Time now = absl::Now();
  MT_ASSIGN_OR_RETURN(const FileInfo info, options_.stream.files->Examine(file.path()));
  if (hashes != nullptr) {
    const std::optional<FileHash> known = hashes->Find(info);
    if (known.has_value() && known->id_bytes == file.element_bytes() && known->largest_id >= 0 &&
        known->largest_id < vocabulary) {
      if (progress) MT_RETURN_IF_ERROR(progress(info.bytes));
      return known->hash;
    }
  }
  MT_ASSIGN_OR_RETURN(const TokenFile::Scanned scanned, file.Scan(vocabulary, progress));
  if (hashes != nullptr) {
    hashes->Remember(info, {scanned.hash, file.element_bytes(), scanned.largest_id}, now);
    hashes->SaveIfDue().IgnoreError();
  }
  return scanned.hash;
}

absl::StatusOr<Sequence> DataSide::Read(int64_t index) const {
  // The last run that does not begin behind the index.
  auto run = std::upper_bound(runs_.begin(), runs_.end(), index,
                              [](int64_t value, const Run& r) { return value < r.first_sequence; });
  --run;
  index -= run->first_sequence;
  return run->stream != nullptr ? run->index->Read(index, options_.pad_id)
                                : ReadTokens(*run, index);
}

absl::StatusOr<Sequence> DataSide::ReadTokens(const Run& run, int64_t index) const {
  const int64_t length = options_.packing.sequence_length;
  std::vector<int32_t> ids(static_cast<size_t>(length));
  const int64_t first = index * length;
  auto file =
      std::upper_bound(run.files.begin(), run.files.end(), first,
                       [](int64_t value, const auto& entry) { return value < entry.first; });
  --file;
  for (int64_t done = 0; done < length; ++file) {
    const int64_t inside = first + done - file->first;
    const int64_t take = std::min(length - done, file->second->tokens() - inside);
    MT_RETURN_IF_ERROR(file->second->Read(inside, take, options_.stream.words.encoder.vocabulary,
                                          ids.data() + done));
    done += take;
  }
  return WholeSequence(std::move(ids));
}

}  // namespace megatrain
