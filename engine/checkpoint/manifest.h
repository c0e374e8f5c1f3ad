// manifest.json, the last file written to a checkpoint, and the names of all others.
//
// The manifest is a JSON object whose last member is the XXH3-128 of everything before it:
//   {
//     "format": "megatrain checkpoint", "version": 1, "tiles": N,
//     "state": {...},
//     "files": [{"name": "...", "bytes": N, "xxh3_128": "<32 hex digits>"}, ...],
//     "xxh3_128": "<32 hex digits>"
//   }
// so that a flipped bit in the manifest itself is found too.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_MANIFEST_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint_state.h"

namespace megatrain {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr int kManifestVersion = 1;
// 200 bytes a file and two files a layer: a thousand layers need 0.4 MB.
inline constexpr int64_t kManifestBytesMax = int64_t{64} << 20;

// The files of tile `index` (from 0) of `tiles`: "model-00001-of-00003.safetensors".
std::string WeightsFileName(int index, int tiles);
std::string OptimizerFileName(int index, int tiles);

struct ManifestFile {
  std::string name;  // within the checkpoint's directory: no '/'
  int64_t bytes = 0;
  std::string xxh3_128;  // 32 hex digits
};

struct Manifest {
  int tiles = 0;
  CheckpointState state;
  std::vector<ManifestFile> files;  // all but the manifest

  const ManifestFile* Find(std::string_view name) const;  // null if absent
  int64_t total_bytes() const;
};

std::string SerializeManifest(const Manifest& manifest);

// DataLoss if the text is damaged, truncated or not what SerializeManifest writes: names that leave
// the directory, appear twice, or a tile's file that is absent. FailedPrecondition for a version
// that this program does not read.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_MANIFEST_H_
