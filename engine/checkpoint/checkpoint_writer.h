// Writes one checkpoint tile by tile, beside the training that goes on.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/checkpoint/retention.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// Thread safety: methods are called from one thread at a time, which need not be the same: Begin
// from the training thread, WriteTile from the `io` lane. Destroying an unfinished writer removes
// its `.tmp` directory. After an error every further call returns that error: the job goes on or
// pauses, and its older checkpoints are untouched.
class CheckpointWriter {
 public:
  // Begins `directory`/step-XXXXXXXX.tmp, after removing what dead processes left (RemoveLeftovers)
  // and checking that the disk has room: ResourceExhausted says how many bytes are wanting.
  // `config_directory`: the HF directory whose config.json (torch_dtype rewritten) and tokenizer
  // files are copied. `layout` and `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Begin(
      const std::string& directory, const ModelLayout& layout, const CheckpointState& state,
      const std::string& config_directory, FileSystem* files = PosixFileSystem());
  virtual ~CheckpointWriter() = default;

  // Writes and fsyncs the two files of tile `index`; every tile once, in any order. Holds no copy:
  // the tile must not change during the call.
  virtual absl::Status WriteTile(int index, const Tile& tile) = 0;

  // Index and manifest; reads the whole checkpoint back from the disk and verifies it; renames and
  // fsyncs; only then prunes older checkpoints of the same run (see retention.h; this one always
  // stays). A checkpoint of the same step is replaced, and those of `retention.discard` go in the
  // same moment: whenever the process dies, all of them are there or the new one is. Returns the
  // final directory.
  virtual absl::StatusOr<std::string> Finish(const Retention& retention) = 0;

  // What did not stop it but a person should know: leftovers removed, directories that retention
  // left alone. Lines for the log.
  virtual const std::vector<std::string>& notes() const = 0;

  // Bytes on disk of a checkpoint of this layout, tokenizer files aside, within 1%: checked against
  // free space by Begin.
  static int64_t EstimateBytes(const ModelLayout& layout, DType weight_dtype);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H_
