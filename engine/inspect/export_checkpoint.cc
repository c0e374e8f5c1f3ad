#include "engine/inspect/export_checkpoint.h"

#include <cstdlib>
#include <memory>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_export.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& directory,
                              FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  const DType dtype = manifest.state.weight_dtype;
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(checkpoint, files));
  // This verifies the files that are copied as they are. Tiles are verified while they are read.
  MT_RETURN_IF_ERROR(VerifyBeforeLoading(checkpoint, files));
  const ModelLayout layout = BuildModelLayout(config);
  const size_t bytes = static_cast<size_t>(layout.tile_elements_max * DTypeBytes(dtype));
  const std::unique_ptr<void, decltype(&std::free)> weights(std::malloc(bytes), &std::free);
  if (weights == nullptr) return absl::ResourceExhaustedError("no memory for the largest tile");
  return ExportHfDirectory(
      checkpoint, layout, dtype,
      [&](int index) -> absl::StatusOr<Tile> {
        // The sections that are null are not read.
        const Tile tile = MakeWeightsTile(&layout.tiles[index], dtype, weights.get());
        MT_RETURN_IF_ERROR(LoadCheckpointTile(checkpoint, manifest, layout, index, tile, files));
        return tile;
      },
      directory, kHfShardBytes, files);
}

}  // namespace megatrain
