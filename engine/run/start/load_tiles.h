// Fills the tiles of a run (engine/model/tile.h) before its first step, with the model that the job
// begins with or from a checkpoint. A process that holds a part of a tile reads little more than
// that part, except from checkpoints of earlier versions, whose files are read whole.
#ifndef MEGATRAIN_ENGINE_RUN_START_LOAD_TILES_H_
#define MEGATRAIN_ENGINE_RUN_START_LOAD_TILES_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/hf/hf_weights.h"
#include "engine/model/tile.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

// The model that a job begins with: that of model.path, or a random one.
class InitialModel {
 public:
  // Both arguments must outlive the result. Returns the errors of HfWeights::Open.
  static absl::StatusOr<InitialModel> Open(RunContext& run, const PreparedRun& prepared);

  // Loads what `tile` holds of tile `index`. Returns the errors of HfWeights::LoadTile. May be
  // called from several threads with different tiles.
  absl::Status Load(int index, const Tile& tile) const;
  // Loads all tiles of the layout, which `tiles` has in its order. Returns the errors of Load, and
  // Cancelled once the run is asked to end. After an error the tiles are partly filled.
  absl::Status Fill(const std::vector<ProcessTile>& tiles) const;

 private:
  InitialModel(RunContext& run, const PreparedRun& prepared) : run_(run), prepared_(prepared) {}

  RunContext& run_;
  const PreparedRun& prepared_;
  std::unique_ptr<HfWeights> weights_;  // null: random
};

// Loads all tiles from the checkpoint prepared.start.checkpoint. `tiles` are those of the layout,
// in its order. Returns Cancelled once the run is asked to end, and the errors of ReadManifest and
// LoadCheckpointTile. After an error the tiles are partly filled. REQUIRES:
// prepared.start.checkpoint is set.
absl::Status FillFromCheckpoint(RunContext& run, const PreparedRun& prepared,
                                const std::vector<ProcessTile>& tiles);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_LOAD_TILES_H_
