#include "engine/run/start/load_tiles.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>

#include "absl/functional/function_ref.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/disk/concurrent_for.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/hf/random_weights.h"

namespace megatrain {
namespace {

// Calls load(index, part) for every part of every tile, from several threads. Returns the first
// error.
absl::Status LoadTiles(RunContext& run, const char* activity, const ModelLayout& layout,
                       const std::vector<ProcessTile>& tile_parts,
                       absl::FunctionRef<absl::Status(int index, const Tile& part)> load) {
  const int tiles = layout.tile_count();
  // A large tile that comes last would be read alone.
  std::vector<int> order(static_cast<size_t>(tiles));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return layout.tiles[a].elements > layout.tiles[b].elements;
  });
  return ConcurrentFor(
      tiles, kTransferThreads,
      [&](int done) {
        run.Report(TrainingPhase::kPreparing, activity, static_cast<double>(done) / tiles);
        return run.CheckNotAbandoned();
      },
      [&](int i) {
        const int index = order[static_cast<size_t>(i)];
        for (const Tile& part : tile_parts[static_cast<size_t>(index)]) {
          MT_RETURN_IF_ERROR(load(index, part));
        }
        return absl::OkStatus();
      });
}

}  // namespace

absl::StatusOr<InitialModel> InitialModel::Open(RunContext& run, const PreparedRun& prepared) {
  InitialModel model(run, prepared);
  const JobSpec::Model& named = run.spec().model;
  if (!named.random_initialization) {
    MT_ASSIGN_OR_RETURN(model.weights_, HfWeights::Open(named.path, prepared.layout, run.files()));
  }
  return model;
}

absl::Status InitialModel::Load(int index, const Tile& tile) const {
  if (weights_ != nullptr) return weights_->LoadTile(index, tile);
  InitializeTile(prepared_.layout.model, run_.spec().training.seed, tile);
  return absl::OkStatus();
}

absl::Status InitialModel::Fill(const std::vector<ProcessTile>& tiles) const {
  return LoadTiles(run_, weights_ != nullptr ? "loading the model" : "making random weights",
                   prepared_.layout, tiles,
                   [&](int index, const Tile& part) { return Load(index, part); });
}

absl::Status FillFromCheckpoint(RunContext& run, const PreparedRun& prepared,
                                const std::vector<ProcessTile>& tiles) {
  const std::string& checkpoint = *prepared.start.checkpoint;
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, run.files()));
  return LoadTiles(
      run, "loading the checkpoint", prepared.layout, tiles, [&](int index, const Tile& part) {
        return LoadCheckpointTile(checkpoint, manifest, prepared.layout, index, part, run.files());
      });
}

}  // namespace megatrain
