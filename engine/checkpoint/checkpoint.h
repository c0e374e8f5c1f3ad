// A checkpoint: one directory a step, `step-00000100/`, that holds for each tile i (from 1) of N
//   model-0000i-of-0000N.safetensors       weights under HF names: with config.json and the index a
//   valid HF model optimizer-0000i-of-0000N.safetensors   NAME.remainder (I16, bf16 only),
//   NAME.exp_avg, NAME.exp_avg_sq (F32) model.safetensors.index.json, config.json, tokenizer files
//   manifest.json                          last: every file's size and XXH3-128, and
//   CheckpointState
// It is written as `step-00000100.tmp`, every file fsynced, the manifest last, the directory
// fsynced, renamed, the parent fsynced; so a directory without ".tmp" is whole. Tensors are
// little-endian, unpadded, in HF shapes.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/memory/tile.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// What a checkpoint holds beside tensors.
struct CheckpointState {
  int64_t step = 0;  // updates applied
  DType weight_dtype = DType::kBF16;
  int64_t data_position =
      0;  // sequences consumed: the next step's first position in training order
  uint64_t seed = 0;
  std::string data_fingerprint;
  std::string model_fingerprint;  // over the layout: names, shapes
  std::map<std::string, std::string>
      spec;                 // key path -> value, of every key a resumed run may not change
  int threads = 0;          // another count may change bits: resuming warns
  int64_t steps_total = 0;  // as planned when it was written
};

// Over names and shapes of all tensors, 32 hex digits.
std::string ModelFingerprint(const ModelLayout& layout);

// Writes one checkpoint tile by tile. Methods are called from one thread at a time. Destroying an
// unfinished writer removes its `.tmp` directory.
class CheckpointWriter {
 public:
  // Begins `directory`/step-XXXXXXXX.tmp, after removing leftovers of the same name.
  // `config_directory`: the HF directory whose config.json (torch_dtype rewritten) and tokenizer
  // files are copied.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Begin(
      const std::string& directory, const ModelLayout& layout, const CheckpointState& state,
      const std::string& config_directory);
  virtual ~CheckpointWriter() = default;
  // Writes and fsyncs the two files of tile `index`. The tile must not change during the call.
  virtual absl::Status WriteTile(int index, const Tile& tile) = 0;
  // Manifest, renames, fsyncs; then reads the whole checkpoint back and verifies it. Only then
  // prunes older checkpoints down to `keep` (at least one good one always remains). Returns the
  // final directory.
  virtual absl::StatusOr<std::string> Finish(int64_t keep) = 0;
  // Bytes on disk of a checkpoint of this layout, within 1%: checked against free space by Begin.
  static int64_t EstimateBytes(const ModelLayout& layout, DType weight_dtype);
};

// Complete checkpoint directories beneath `directory`, newest (highest step) first. A missing
// directory is empty.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory);

// Reads the manifest: files, sizes, state. Does not read tensors.
absl::StatusOr<CheckpointState> ReadCheckpointState(const std::string& checkpoint);

// Reads every file and compares sizes and hashes with the manifest; DataLoss names the first bad
// file.
absl::Status VerifyCheckpoint(const std::string& checkpoint);

// The newest checkpoint beneath `directory` that verifies; nothing if there is none. Bad ones are
// named in *skipped.
absl::StatusOr<std::optional<std::string>> FindNewestVerified(const std::string& directory,
                                                              std::vector<std::string>* skipped);

// Loads tile `index` in place, streaming: no second copy of a tile is held. Checks names, dtypes
// and shapes.
absl::Status LoadCheckpointTile(const std::string& checkpoint, const ModelLayout& layout, int index,
                                const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_
