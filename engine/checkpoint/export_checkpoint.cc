#include "engine/checkpoint/export_checkpoint.h"

#include <cstdint>
#include <vector>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/model/hf_directory.h"

namespace megatrain {

absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& out_directory) {
  MT_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpointState(checkpoint));
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(checkpoint));
  const ModelLayout layout = BuildModelLayout(config);
  // 64-bit elements: aligned for either type.
  std::vector<uint64_t> weights((layout.tile_elements_max * DTypeBytes(state.weight_dtype) + 7) /
                                8);
  const auto get_tile = [&](int index) -> absl::StatusOr<Tile> {
    Tile tile;  // of weights alone
    tile.layout = &layout.tiles[index];
    tile.weight_dtype = state.weight_dtype;
    tile.weights = weights.data();
    MT_RETURN_IF_ERROR(LoadCheckpointTile(checkpoint, layout, index, tile));
    return tile;
  };
  return ExportHfDirectory(checkpoint, layout, state.weight_dtype, get_tile, out_directory);
}

}  // namespace megatrain
