// Reads checkpoints: their manifest, their checksums, their tiles.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_READER_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_READER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/checkpoint/manifest.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// NotFound if `checkpoint` has no manifest.json, DataLoss if it is damaged. An error in reading it
// is returned as it is: IsDamagedCheckpoint tells the two apart. Reads nothing else.
absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint,
                                      FileSystem* files = PosixFileSystem());
absl::StatusOr<CheckpointState> ReadCheckpointState(const std::string& checkpoint,
                                                    FileSystem* files = PosixFileSystem());

// Reads every file and compares sizes and hashes with the manifest; DataLoss names the first bad
// file. A file that cannot be read (an I/O error, no permission, no descriptor left) gives that
// error. Files that the manifest does not list are no part of the checkpoint and are not read.
absl::Status VerifyCheckpoint(const std::string& checkpoint, FileSystem* files = PosixFileSystem());

// Whether `status`, of ReadManifest or VerifyCheckpoint, says that the bytes on the disk are no
// whole checkpoint. Other errors say nothing about them: the checkpoint may be good.
bool IsDamagedCheckpoint(const absl::Status& status);

// Loads tile `index` in place: the bytes go from the file to the tile, padding is zeroed, and no
// copy is held beside it. Sections of `tile` that are null are not read, so that a tile of weights
// alone can be filled. Checks names, dtypes, shapes (FailedPrecondition if the checkpoint is of
// another model or precision) and, as the bytes pass, the checksums (DataLoss: the tile's content
// is then not to be used).
absl::Status LoadCheckpointTile(const std::string& checkpoint, const ModelLayout& layout, int index,
                                const Tile& tile, FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_READER_H_
