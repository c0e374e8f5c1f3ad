// Writes a checkpoint tile by tile while training goes on.
//
// Several processes, each of which holds a part of every tile, write one checkpoint together into a
// directory that they share. The tiles' files are those that one process would write, byte for
// byte. All processes make the same calls, Finish also after an error, and get the same error from
// Begin and Finish, so that the job goes on or ends as a whole. Each page of a file is written by
// one process (shared_pages.h). If a process dies, what it leaves is never taken for a checkpoint,
// because rank 0 gives a checkpoint its name only once all bytes of all ranks are verified.
//
// Machines with directories of their own write a part of the checkpoint each (CheckpointPart). A
// part has the same files, but those of tiles have the elements of the machine's ranks alone. The
// parts get their names when all are verified, and older checkpoints are removed when all have
// their names. If a machine dies in between, some machines have the new part, and all have the
// older ones.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/hf/hf_format.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// Writes one checkpoint: Begin, WriteTile for every tile, Finish. Thread safety: one thread at a
// time may call methods, and it may be a different one each time.
//
// After an error of WriteTile, this process's later calls of WriteTile return the same error.
// Finish then returns it too or, of several processes, the error of the lowest rank that has one.
// Older checkpoints are untouched after an error, unless the new one already has its name. If one
// that was moved aside could not be moved back, RemoveLeftovers does it. The destructor of an
// unfinished writer removes the `.tmp` directory; of several processes, the one that leads in the
// directory (DirectoryRanks) does so. A single process removes it as soon as WriteTile fails.
class CheckpointWriter {
 public:
  // Creates `directory` if it is missing, calls RemoveLeftovers and creates step-XXXXXXXX.tmp. The
  // tokenizer files and chat templates of `side_files`, and its config.json as RewriteConfigDType
  // changes it, are copied into it during the call. Finish copies the carried tensors of a wrapper
  // (carried_tensors.h). `ranks` are the processes that write together; by default there is one.
  // Their communicator must serve saves alone and have a deadline longer than a save takes, since
  // processes wait for each other's disks. `layout`, `files` and the communicator must outlive the
  // writer. REQUIRES: no other process uses `directory`, but those of `ranks` (directory_lock.h).
  //
  // Returns ResourceExhausted, with the number of bytes needed, if the disk has no room. Returns
  // FailedPrecondition if RemoveLeftovers has left step-XXXXXXXX.tmp alone, if a file has the
  // checkpoint's name, or if the directory to be replaced holds a foreign entry. Returns the errors
  // of CheckIsShared, CarriedTensors::Open, CopyHfSideFiles, the communicator and `files`.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Begin(
      const std::string& directory, const ModelLayout& layout, const CheckpointState& state,
      const HfSideFiles& side_files, FileSystem* files = PosixFileSystem(),
      const DirectoryRanks& ranks = {});
  virtual ~CheckpointWriter() = default;

  // Writes what `parts` hold to the two files of tile `index` (from 0). `parts` is a ProcessTile
  // (engine/model/tile.h) and not empty. Each process must write each tile once, in any order, also
  // if it holds nothing of it. Returns Internal if it is called a second time for a tile, or if
  // there is no tile `index`. Finish returns Internal if a tile is missing. Waits for no other
  // process. The tile must not change during the call and is not needed afterwards. Copies of at
  // most kTransferBytes (transfer.h) are then still to be written. If that fails, a later call
  // returns the error.
  virtual absl::Status WriteTile(int index, absl::Span<const Tile> parts) = 0;

  // Replaces the evaluations in the state that Begin was given, because the evaluation of the
  // checkpoint's own step may be made after Begin. REQUIRES: Finish was not called.
  virtual void SetEvaluations(const Evaluations& evaluations) = 0;

  // Waits until the tiles are on stable storage, and writes the other files, the manifest last.
  // Verifies all by reading them back from the disk, and gives the checkpoint its name. Then
  // removes older checkpoints of the same run as `retention` says. Returns the path of the
  // checkpoint.
  //
  // A checkpoint of the same step and those of `retention.discard` are replaced together: after a
  // crash, RemoveLeftovers leaves either all of them or the new one.
  //
  // Returns DataLoss if a file is not on the disk as it was written, Internal if a tile was not
  // written, and FailedPrecondition if a checkpoint to be replaced holds a foreign entry. Returns
  // the error of WriteTile, and the errors of CarriedTensors::Write, of the communicator and of
  // `files` (IsDiskFull for a full disk). An older checkpoint that cannot be removed is no error:
  // notes() has a line for it. Call it once.
  virtual absl::StatusOr<std::string> Finish(const Retention& retention) = 0;

  // Returns lines for the log about events that are not errors, such as leftovers removed and
  // directories that could not be removed. Of several processes, rank 0 has the lines of all once
  // Finish has succeeded. Valid as long as the writer.
  virtual const std::vector<std::string>& notes() const = 0;

  // Returns the bytes on disk of a checkpoint of this layout without the tokenizer files, accurate
  // to 1%. Begin compares it, of several parts the machine's share of it, with the free space.
  static int64_t EstimateBytes(const ModelLayout& layout, DType weight_dtype);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H_
