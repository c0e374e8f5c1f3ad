#include "engine/data/sequences/sequence_index.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Part of the key: a change of how documents are packed changes it.
constexpr char kIndexVersion[] = "megatrain sequences 3";
constexpr int64_t kScanWords = int64_t{1} << 18;  // 1 MiB

std::string ToText(const PackingCounts& counts) {
  return nlohmann::json{{"sequences", counts.sequences},
                        {"tokens", counts.tokens},
                        {"truncated_examples", counts.truncated_examples},
                        {"examples_without_target", counts.examples_without_target}}
      .dump();
}

// Checksums keep out accidents, but whoever may write the cache may write a text with one. Returns
// DataLoss if this one is not of an index of `elements` sequences.
absl::StatusOr<PackingCounts> FromText(const std::string& text, int64_t elements) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  PackingCounts counts;
  bool good = true;
  const auto take = [&](const char* name, int64_t* count) {
    const auto found = json.find(name);
    good &= found != json.end() && found->is_number_integer();
    if (good) *count = found->get<int64_t>();
    good &= *count >= 0;
  };
  take("sequences", &counts.sequences);
  take("tokens", &counts.tokens);
  take("truncated_examples", &counts.truncated_examples);
  take("examples_without_target", &counts.examples_without_target);
  if (good && counts.sequences == elements) return counts;
  return absl::DataLossError("its description is not that of its sequences");
}

absl::StatusOr<PackingCounts> Make(const TokenStream& stream, const PackingOptions& options,
                                   const ByteProgress& progress, CacheFileWriter* writer) {
  SequencePacker packer(options, [writer](uint64_t word) { return writer->Append(&word, 1); });
  std::vector<uint32_t> words;
  for (int64_t at = 0; at < stream.words(); at += kScanWords) {
    words.resize(static_cast<size_t>(std::min(kScanWords, stream.words() - at)));
    MT_RETURN_IF_ERROR(stream.Read(at, static_cast<int64_t>(words.size()), words.data()));
    MT_RETURN_IF_ERROR(packer.Append(words));
    if (progress) MT_RETURN_IF_ERROR(progress(0));
  }
  MT_RETURN_IF_ERROR(packer.Finish());
  MT_RETURN_IF_ERROR(writer->Finish(ToText(packer.counts())));
  return packer.counts();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceIndex>> SequenceIndex::Open(
    const TokenStream* stream, const PackingOptions& options, const std::string& cache_directory,
    const ByteProgress& progress, FileSystem* files, bool verify) {
  // The stream's key does not know which records were left out. Its counts do.
  const std::string key = HashText(absl::StrCat(
      kIndexVersion, "\n", stream->key(), "\n", stream->words(), " ", stream->documents(), " ",
      stream->bad_records().count, "\n", options.sequence_length, " ",
      options.packing ? "packed" : "unpacked", options.pairs ? " pairs" : ""));
  const std::string name = absl::StrCat("sequences-", key, ".cache");
  const std::string path = absl::StrCat(cache_directory, "/", name);
  for (int round = 0;; ++round) {
    // Before it is opened: what another process makes then is not replaced.
    const absl::StatusOr<FileInfo> before = files->Examine(path);
    absl::StatusOr<std::unique_ptr<CacheFile>> begins =
        CacheFile::Open(cache_directory, name, key, sizeof(uint64_t), progress, files, verify);
    if (absl::IsCancelled(begins.status())) return begins.status();
    const absl::StatusOr<PackingCounts> counts =
        begins.ok() ? FromText((*begins)->meta(), (*begins)->elements()) : begins.status();
    if (counts.ok()) {
      return std::unique_ptr<SequenceIndex>(
          new SequenceIndex(stream, options, *std::move(begins), *counts));
    }
    if (round == 2) {
      return absl::Status(
          counts.status().code(),
          absl::StrCat(path, ": was just made and cannot be read: ", counts.status().message()));
    }
    MT_ASSIGN_OR_RETURN(std::unique_ptr<CacheFileWriter> writer,
                        CacheFileWriter::Create(cache_directory, name, key, sizeof(uint64_t),
                                                progress, files, before));
    if (writer == nullptr) continue;
    MT_RETURN_IF_ERROR(Make(*stream, options, progress, writer.get()).status());
  }
}

absl::StatusOr<Sequence> SequenceIndex::Read(int64_t index, int32_t pad_id) const {
  uint64_t bounds[2] = {0, static_cast<uint64_t>(stream_->words())};
  const int64_t count = std::min<int64_t>(2, begins_->elements() - index);
  MT_RETURN_IF_ERROR(begins_->Read(index, count, bounds));
  if (bounds[0] >= bounds[1] || bounds[1] > static_cast<uint64_t>(stream_->words())) {
    return absl::DataLossError(absl::StrCat("sequence ", index, " of the prepared data is said to ",
                                            "be words ", bounds[0], " to ", bounds[1], " of ",
                                            stream_->words()));
  }
  Sequence sequence;
  MT_RETURN_IF_ERROR(FillPackedSequence(
      options_,
      [this](int64_t first, int64_t words_count, uint32_t* words) {
        return stream_->Read(first, words_count, words);
      },
      static_cast<int64_t>(bounds[0]), static_cast<int64_t>(bounds[1]), pad_id, &sequence));
  return sequence;
}

}  // namespace megatrain
