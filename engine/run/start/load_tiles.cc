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

// Calls load(index) for every tile, from several threads. Returns the first error.
absl::Status LoadTiles(RunContext& run, const char* activity, const ModelLayout& layout,
                       absl::FunctionRef<absl::Status(int index)> load) {
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
      [&](int i) { return load(order[i]); });
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

absl::Status InitialModel::Fill(const std::vector<Tile>& tiles) const {
  return LoadTiles(run_, weights_ != nullptr ? "loading the model" : "making random weights",
                   prepared_.layout, [&](int index) { return Load(index, tiles[index]); });
}

absl::Status FillFromCheckpoint(RunContext& run, const PreparedRun& prepared,
                                const std::vector<Tile>& tiles) {
  const std::string& checkpoint = *prepared.start.checkpoint;
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, run.files()));
  return LoadTiles(run, "loading the checkpoint", prepared.layout, [&](int index) {
    return LoadCheckpointTile(checkpoint, manifest, prepared.layout, index, tiles[index],
                              run.files());
  });
}

}  // namespace megatrain
