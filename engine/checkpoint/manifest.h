// The format of manifest.json, the file of a checkpoint that is written last, and the names of a
// tile's files.
//
// The manifest is a JSON object whose last member is the XXH3-128 of everything before it, so that
// a damaged manifest is detected too:
//   {
//     "format": "megatrain checkpoint", "version": 1, "tiles": N,
//     "state": {...},
//     "files": [{"name": "...", "bytes": N, "xxh3_128": "<32 hex digits>",
//                "blocks_xxh3_128": "<32 hex digits for each block>"}, ...],
//     "xxh3_128": "<32 hex digits>"
//   }
//
// A checkpoint that has a part of the tiles has version 2, a member "part": {"number": N, "of": N,
// "save": "<32 hex digits>"}, and in the entry of each tile's file "ranges": [[N, N], ...]
// (ManifestFile::ranges).
//
// The files of tiles have a hash for each block too. A process that holds a part of a tile reads
// and verifies the blocks of this part alone. Manifests of earlier programs lack these hashes; the
// files are then read and verified whole.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_MANIFEST_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_MANIFEST_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/checkpoint/disk/transfer.h"

namespace megatrain {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr int kManifestVersion = 1;
inline constexpr int kPartManifestVersion = 2;
inline constexpr size_t kHashDigits = 32;
// The blocks of "blocks_xxh3_128"; the last one of a file may be smaller.
inline constexpr int64_t kHashBlockBytes = int64_t{4} << 20;
// The largest manifest that is read. A manifest takes 32 bytes for each block, which are 8 MB for a
// checkpoint of a terabyte, and 200 bytes for each file.
inline constexpr int64_t kManifestBytesMax = int64_t{128} << 20;

// Return the file names of tile `index` (from 0) of `tiles`: "model-00001-of-00003.safetensors" and
// "optimizer-00001-of-00003.safetensors". A part's files have kPartSuffix behind these names.
std::string WeightsFileName(int index, int tiles);
std::string OptimizerFileName(int index, int tiles);
inline constexpr char kPartSuffix[] = ".part";

// The entry of a file.
struct ManifestFile {
  // The path relative to the checkpoint's directory: a file name, or one in kHfTemplatesDirectory
  // (hf_format.h).
  std::string name;
  int64_t bytes = 0;
  std::string xxh3_128;     // 32 hex digits
  std::string blocks = "";  // 32 hex digits for each block; empty if the blocks have no hashes
  // In a part of a checkpoint, the bytes of a tile's whole file, behind its header, that the part
  // has: ascending and apart. The part's file is the header, then these bytes (PartOfFile).
  std::vector<FileRange> ranges = {};

  // Returns the hash of the block that has byte `offset`, valid as long as `blocks`. REQUIRES:
  // `blocks` is not empty, and the file has this byte.
  std::string_view BlockHash(int64_t offset) const {
    return std::string_view(blocks).substr(
        static_cast<size_t>(offset / kHashBlockBytes) * kHashDigits, kHashDigits);
  }
};

// Says which part of the tiles a checkpoint has, where the machines of a job have directories of
// their own.
struct CheckpointPart {
  int number = 0;    // from 0
  int parts = 2;     // that make the checkpoint together
  std::string save;  // 32 hex digits, the same in all parts of one save and in no other
};

// The content of a manifest.
struct Manifest {
  int tiles = 0;  // of the model
  CheckpointState state;
  std::optional<CheckpointPart> part;  // nullopt: it has all of the tiles
  std::vector<ManifestFile> files;     // all files but the manifest itself

  // Returns the entry, valid as long as `files` is unchanged, or null if there is none.
  const ManifestFile* Find(std::string_view name) const;
  // Returns the names of the weights file and the optimizer file of tile `index`.
  std::array<std::string, 2> TileFileNames(int index) const;
  int64_t total_bytes() const;  // of `files`
};

// Returns the content of manifest.json, with its own hash as the last member.
std::string SerializeManifest(const Manifest& manifest);

// Parses what SerializeManifest returned. Returns DataLoss if the text is damaged, truncated or
// inconsistent: for instance if a member is missing or of another type, if a file name leaves the
// directory or appears twice, or if a tile's file or the index of the weights is not listed.
// Returns FailedPrecondition for a version later than kPartManifestVersion.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_MANIFEST_H_
