// Writes and verifies the files of a checkpoint's tiles. Where several ranks (processes) share the
// tiles, each writes the elements that it holds into the same files, which get the bytes that one
// process would write. One rank writes the headers of a tile's files; the ranks take turns, tile by
// tile. Ranks with a directory of their own write files that have their parts alone (PartOfFile).
//
// The files are read back once, each by one rank of their directory in turn, and compared with
// hashes that every rank made of its own bytes in memory. The reader makes the hashes for the
// manifest on the way.
//
// Thread safety: one thread at a time may call methods.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_WRITER_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/checkpoint/disk/parallel_writer.h"
#include "engine/checkpoint/disk/shared_pages.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/checkpoint/tile_files.h"
#include "engine/comm/communicator.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

class TileFilesWriter {
 public:
  // The files lie in `directory`, which must exist before WriteTile. `layout`, the communicator of
  // `ranks` and `files` must outlive this.
  TileFilesWriter(const std::string& directory, const ModelLayout& layout, DType weight_dtype,
                  const DirectoryRanks& ranks, FileSystem* files);

  // Writes what `parts` hold to the two files of tile `index`, as CheckpointWriter::WriteTile.
  absl::Status WriteTile(int index, absl::Span<const Tile> parts);

  // Waits until all files are on stable storage, reads them back and verifies them. Returns the
  // entries for the manifest of the files in this rank's directory, those of a tile's weights and
  // optimizer next to each other. All ranks must call this, once, also after an error; `own` is
  // this rank's status so far. All return the same error: an error of a rank so far, Internal if a
  // rank did not write a tile, DataLoss if a file is not on the disk as it was written, or that of
  // the communicator or of `files`.
  absl::StatusOr<std::vector<ManifestFile>> Finish(const absl::Status& own);

  // Returns false if a file went through the page cache. REQUIRES: Finish succeeded.
  bool direct() const { return writer_.direct(); }

 private:
  // The share of a rank in a tile and its two files. Ranks exchange it as bytes.
  struct Part {
    bool written = false;
    HeldElements held;
    char hashes[2][kHashDigits + 1] = {};  // of the rank's bytes of each file, in their order
  };

  // A tile's file as this rank's directory has it.
  struct OwnFile {
    TileFile laid;                                  // the whole file
    std::optional<PartOfFile> part = std::nullopt;  // nullopt: the directory has all of it
    std::string name, path;
    int64_t bytes = 0;
  };

  absl::StatusOr<OwnFile> FileAt(int number) const;
  // Returns what a rank that holds `held` of the tile has of the file, with the places in it.
  absl::StatusOr<std::vector<PieceRun>> RunsIn(const OwnFile& file, int tile,
                                               const HeldElements& held) const;
  bool writes_header(int tile, int rank) const {
    return ranks_.begin + tile % (ranks_.end - ranks_.begin) == rank;
  }
  int rank() const { return ranks_.rank(); }
  // Writes the pages that ranks have exchanged.
  absl::Status WriteSharedPages();
  // Gathers the parts of all ranks and checks that together they are whole tiles. Returns the same
  // on all ranks.
  absl::Status GatherParts();
  absl::Status CheckParts() const;
  // Reads the files that this rank verifies and fills their entries.
  absl::Status VerifyFiles();
  absl::Status VerifyFile(int number, ManifestFile& entry) const;
  // Fills the entries of the files that other ranks have verified.
  absl::Status GatherHashes();

  const std::string directory_;
  const ModelLayout& layout_;
  const DType weight_dtype_;
  const DirectoryRanks ranks_;
  Communicator* const communicator_;  // that of ranks_
  FileSystem* const files_;
  std::vector<std::vector<Part>> parts_;  // [ranks][tiles]; until GatherParts of this rank alone
  std::vector<ManifestFile> entries_;  // by number of the file: 2 tile for weights, else 2 tile + 1
  SharedPages pages_;
  ParallelWriter writer_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_TILE_FILES_WRITER_H_
