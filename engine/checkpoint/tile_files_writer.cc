#include "engine/checkpoint/tile_files_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/content_hash.h"
#include "engine/base/status.h"
#include "engine/checkpoint/disk/concurrent_for.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/comm/exchange.h"

namespace megatrain {
namespace {

// The bytes of a file that one rank writes; it ends where the next range begins.
struct RankRange {
  int64_t begin = 0, end = 0;
  int rank = 0;
};

}  // namespace

TileFilesWriter::TileFilesWriter(const std::string& directory, const ModelLayout& layout,
                                 DType weight_dtype, const DirectoryRanks& ranks, FileSystem* files)
    : directory_(directory),
      layout_(layout),
      weight_dtype_(weight_dtype),
      ranks_(ranks),
      communicator_(ranks.communicator),
      files_(files),
      parts_(static_cast<size_t>(ranks.ranks()), std::vector<Part>(layout.tiles.size())),
      entries_(2 * layout.tiles.size()),
      writer_(files) {}

absl::StatusOr<TileFilesWriter::OwnFile> TileFilesWriter::FileAt(int number) const {
  const int tile = number / 2;
  OwnFile file;
  MT_ASSIGN_OR_RETURN(file.laid, LayOutTileFile(layout_, tile, number % 2 == 0, weight_dtype_));
  file.name = file.laid.name;
  file.bytes = file.laid.bytes;
  if (const std::optional<HeldElements> held = ranks_.HeldOf(tile); held.has_value()) {
    file.name += kPartSuffix;
    file.part.emplace(file.laid, layout_.tiles[tile], weight_dtype_, *held);
    file.bytes = file.part->bytes();
  }
  file.path = JoinPath(directory_, file.name);
  return file;
}

absl::StatusOr<std::vector<PieceRun>> TileFilesWriter::RunsIn(const OwnFile& file, int tile,
                                                              const HeldElements& held) const {
  std::vector<PieceRun> runs = RunsOf(file.laid, layout_.tiles[tile], weight_dtype_, held);
  if (file.part.has_value() && !file.part->ToPartOffsets(runs)) {
    return absl::InternalError(
        absl::StrCat("tile ", tile, " has elements that are not in this directory's part"));
  }
  return runs;
}

absl::Status TileFilesWriter::WriteTile(int index, absl::Span<const Tile> parts) {
  const int tiles = layout_.tile_count();
  if (index < 0 || index >= tiles || parts_[rank()][index].written) {
    return absl::InternalError(
        absl::StrCat("tile ", index, " is written twice or is not one of the model's ", tiles));
  }
  Part& part = parts_[rank()][index];
  std::vector<OwnFile> own(2);
  std::vector<ParallelWriter::FileToWrite> new_files(2);
  for (int i = 0; i < 2; ++i) {
    const int number = 2 * index + i;
    MT_ASSIGN_OR_RETURN(own[i], FileAt(number));
    ParallelWriter::FileToWrite& file = new_files[i];
    file.path = own[i].path;
    if (writes_header(index, rank())) {
      file.pieces.push_back({0, own[i].laid.header.data(), own[i].laid.header_bytes()});
    }
    for (const Tile& each : parts) {
      MT_ASSIGN_OR_RETURN(const std::vector<PieceRun> runs, RunsIn(own[i], index, each.held));
      for (const FilePiece& piece : PlacesOf(runs, each)) file.pieces.push_back(piece);
    }
    // Each part has a piece of many tensors; the hash is of the bytes in the file's order.
    std::sort(file.pieces.begin(), file.pieces.end(),
              [](const FilePiece& a, const FilePiece& b) { return a.offset < b.offset; });
    if (communicator_ == nullptr) continue;
    file.shared = true;
    file.bytes = own[i].bytes;
    file.ranges = pages_.AddFile(number, file.bytes, file.pieces);
  }
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> hashes, writer_.Write(std::move(new_files)));
  for (int i = 0; i < 2; ++i) hashes[i].copy(part.hashes[i], kHashDigits);
  const HeldElements &first = parts.front().held, &last = parts.back().held;
  part.held = {{first.state.begin, last.state.end}, {first.stateless.begin, last.stateless.end}};
  part.written = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ManifestFile>> TileFilesWriter::Finish(const absl::Status& own) {
  MT_RETURN_IF_ERROR(Agree(communicator_, own.ok() ? writer_.Finish() : own));
  MT_RETURN_IF_ERROR(GatherParts());
  if (communicator_ != nullptr) {
    MT_RETURN_IF_ERROR(Agree(communicator_, WriteSharedPages()));
  }
  MT_RETURN_IF_ERROR(Agree(communicator_, VerifyFiles()));
  MT_RETURN_IF_ERROR(GatherHashes());
  return entries_;
}

absl::Status TileFilesWriter::GatherParts() {
  const std::vector<Part>& own = parts_[rank()];
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(Part));
  MT_RETURN_IF_ERROR(ExchangeBytes(communicator_, bytes, [&](int rank, absl::string_view of_rank) {
    std::memcpy(parts_[rank].data(), of_rank.data(),
                std::min(of_rank.size(), own.size() * sizeof(Part)));
  }));
  // All ranks must fail where one directory is wrong.
  return Agree(communicator_, CheckParts());
}

absl::Status TileFilesWriter::CheckParts() const {
  for (int tile = 0; tile < layout_.tile_count(); ++tile) {
    const TileLayout& layout = layout_.tiles[tile];
    int64_t end = 0, stateless_end = layout.state_elements();
    for (int rank = 0; rank < ranks_.ranks(); ++rank) {
      const Part& part = parts_[rank][tile];
      const HeldElements& held = part.held;
      if (!part.written || held.state.begin != end || held.stateless.begin != stateless_end) {
        return absl::InternalError(absl::StrCat(
            part.written ? "its part does not begin at the end of the one before: tile " : "tile ",
            tile, " was not written by rank ", rank));
      }
      end = held.state.end;
      stateless_end = held.stateless.end;
    }
    if (end != layout.state_elements() || stateless_end != layout.elements) {
      return absl::InternalError(
          absl::StrCat("tile ", tile, " was written up to elements ", end, " and ", stateless_end));
    }
    const HeldElements &first = parts_[ranks_.begin][tile].held,
                       &last = parts_[ranks_.end - 1][tile].held;
    const HeldElements here = {{first.state.begin, last.state.end},
                               {first.stateless.begin, last.stateless.end}};
    if (here != ranks_.HeldOf(tile).value_or(here)) {
      return absl::InternalError(absl::StrCat("tile ", tile, " of this directory is not whole"));
    }
  }
  return absl::OkStatus();
}

absl::Status TileFilesWriter::WriteSharedPages() {
  MT_RETURN_IF_ERROR(pages_.Exchange(communicator_, ranks_.begin, ranks_.end));
  for (int number = 0; number < std::ssize(entries_); ++number) {
    ParallelWriter::FileToWrite file;
    file.pieces = pages_.PagesOf(number);
    if (file.pieces.empty()) continue;
    MT_ASSIGN_OR_RETURN(const OwnFile own, FileAt(number));
    file.path = own.path;
    file.shared = true;
    file.bytes = own.bytes;
    for (const FilePiece& page : file.pieces) {
      file.ranges.push_back({page.offset, page.offset + page.bytes});
    }
    std::vector<ParallelWriter::FileToWrite> new_files;
    new_files.push_back(std::move(file));
    MT_RETURN_IF_ERROR(writer_.Write(std::move(new_files)).status());
  }
  return writer_.Finish();
}

absl::Status TileFilesWriter::VerifyFiles() {
  // Largest first: a large file that comes last would be read alone.
  std::vector<std::pair<int64_t, int>> by_size;
  for (int number = 0; number < std::ssize(entries_); ++number) {
    MT_ASSIGN_OR_RETURN(const OwnFile file, FileAt(number));
    entries_[number].name = file.name;
    entries_[number].bytes = file.bytes;
    if (file.part.has_value()) entries_[number].ranges = file.part->ranges();
    by_size.push_back({-file.bytes, number});
  }
  std::sort(by_size.begin(), by_size.end());
  std::vector<int> own;
  for (int i = rank() - ranks_.begin; i < std::ssize(by_size); i += ranks_.end - ranks_.begin) {
    own.push_back(by_size[static_cast<size_t>(i)].second);
  }
  return ConcurrentFor(
      static_cast<int>(own.size()), kTransferThreads, [](int) { return absl::OkStatus(); },
      [&](int i) { return VerifyFile(own[i], entries_[own[i]]); });
}

// What was synced has left the page cache: this reads the disk.
absl::Status TileFilesWriter::VerifyFile(int number, ManifestFile& entry) const {
  const int tile = number / 2;
  MT_ASSIGN_OR_RETURN(const OwnFile own, FileAt(number));
  std::vector<RankRange> ranges;
  for (int rank = ranks_.begin; rank < ranks_.end; ++rank) {
    if (writes_header(tile, rank)) ranges.push_back({0, own.laid.header_bytes(), rank});
    MT_ASSIGN_OR_RETURN(const std::vector<PieceRun> runs,
                        RunsIn(own, tile, parts_[rank][tile].held));
    for (const PieceRun& run : runs) ranges.push_back({run.offset, run.offset + run.bytes(), rank});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const RankRange& a, const RankRange& b) { return a.begin < b.begin; });
  const std::string& path = own.path;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                      files_->OpenBlocksForReading(path));
  if (file->size() != entry.bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", file->size(), " bytes on the disk, ",
                                            entry.bytes, " were written"));
  }
  ContentHash whole;
  std::vector<ContentHash> of_ranks(static_cast<size_t>(ranks_.ranks()));
  const bool several = ranks_.end - ranks_.begin > 1;
  auto range = ranges.begin();
  MT_RETURN_IF_ERROR(ReadInBlocks(*file, [&](int64_t offset, const char* block, int64_t bytes) {
    if (several) whole.Update(block, bytes);
    entry.blocks += HashBytes({block, static_cast<size_t>(bytes)});
    for (int64_t at = offset; at < offset + bytes;) {
      while (range->end <= at) ++range;
      const int64_t end = std::min(range->end, offset + bytes);
      of_ranks[range->rank].Update(block + (at - offset), end - at);
      at = end;
    }
    return absl::OkStatus();
  }));
  for (int rank = ranks_.begin; rank < ranks_.end; ++rank) {
    if (of_ranks[rank].Hex() == parts_[rank][tile].hashes[number % 2]) continue;
    return absl::DataLossError(
        absl::StrCat(path, " is not on the disk as it was written by rank ", rank));
  }
  entry.xxh3_128 = several ? whole.Hex() : of_ranks[ranks_.begin].Hex();
  return absl::OkStatus();
}

absl::Status TileFilesWriter::GatherHashes() {
  std::string own;
  for (int number = 0; number < std::ssize(entries_); ++number) {
    const ManifestFile& entry = entries_[number];
    if (entry.xxh3_128.empty()) continue;
    absl::StrAppend(&own, number, " ", entry.xxh3_128, " ", entry.blocks, "\n");
  }
  return ExchangeBytes(communicator_, own, [&](int rank, absl::string_view lines) {
    if (!ranks_.Shares(rank)) return;
    for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      int number = 0;
      if (words.size() != 3 || !absl::SimpleAtoi(words[0], &number)) continue;
      entries_[number].xxh3_128 = words[1];
      entries_[number].blocks = words[2];
    }
  });
}

}  // namespace megatrain
