// Reads and verifies checkpoints. `checkpoint` is the path of a step directory, and `files` is used
// during a call only.
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

// Reads manifest.json and no other file. Returns NotFound if there is none, DataLoss if it is
// damaged, FailedPrecondition if its version is later than this program reads, and otherwise the
// error of reading it.
absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint,
                                      FileSystem* files = PosixFileSystem());
// Returns the state in the manifest, or the errors of ReadManifest.
absl::StatusOr<CheckpointState> ReadCheckpointState(const std::string& checkpoint,
                                                    FileSystem* files = PosixFileSystem());

// Reads every file that the manifest lists, several at a time, and compares its size and hash.
// Returns DataLoss for a file that is missing or differs, the errors of ReadManifest, and the error
// of reading for a file that cannot be read. Files that the manifest does not list are ignored.
absl::Status VerifyCheckpoint(const std::string& checkpoint, FileSystem* files = PosixFileSystem());

// Does as VerifyCheckpoint, with the same errors, but reads one file after the other, and of the
// tiles' files compares the sizes alone. Their hashes are left to LoadCheckpointTile, so that a
// checkpoint to resume from is read once.
absl::Status VerifyAllButTileContents(const std::string& checkpoint,
                                      FileSystem* files = PosixFileSystem());

// Returns true if `status`, an error of a function of this header, means that the checkpoint on the
// disk is incomplete or damaged (DataLoss, NotFound). After other errors it may still be good.
bool IsDamagedCheckpoint(const absl::Status& status);

// Reads the elements that `tile` holds of tile `index` (from 0) from the tile's files into the
// memory of `tile`, and sets the padding there to zero. `manifest` is that of `checkpoint`
// (ReadManifest). Sections of `tile` that are null are skipped, so that weights alone can be
// loaded. REQUIRES: tile.layout is &layout.tiles[index].
//
// Reads and verifies the blocks that hold these elements or the file's header, or whole files if
// the manifest has no hashes of blocks. A file that does not fit the layout is also read whole, to
// see whether it is damaged, unless the checkpoint has a part of the tiles alone.
//
// Returns FailedPrecondition if the checkpoint is of another model or precision, that is, if names,
// dtypes or shapes differ from the layout's. Returns it also if the checkpoint has a part of the
// tiles alone (CheckpointPart) and lacks something that `tile` holds. Returns DataLoss if a file is
// missing or its size or checksum is wrong, and the error of reading for a file that cannot be
// read. After an error the content of `tile` is undefined. Thread safety: may be called for
// different tiles at the same time.
absl::Status LoadCheckpointTile(const std::string& checkpoint, const Manifest& manifest,
                                const ModelLayout& layout, int index, const Tile& tile,
                                FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_READER_H_
