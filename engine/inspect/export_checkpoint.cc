#include "engine/inspect/export_checkpoint.h"

#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/weight_files.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& directory,
                              FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  if (manifest.part.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint, " is part ", manifest.part->number + 1, " of ",
                     manifest.part->parts, "; join all parts with `megatraind gather` first"));
  }
  const DType dtype = manifest.state.weight_dtype;
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(checkpoint, files));
  // This verifies the files that are copied as they are. Tiles are verified while they are read.
  MT_RETURN_IF_ERROR(VerifyAllButTileContents(checkpoint, files));
  const ModelLayout layout = BuildModelLayout(config);
  const size_t bytes = static_cast<size_t>(layout.tile_elements_max * DTypeBytes(dtype));
  const std::unique_ptr<void, decltype(&std::free)> weights(std::malloc(bytes), &std::free);
  if (weights == nullptr) return absl::ResourceExhaustedError("no memory for the largest tile");
  // The tiles' files are verified by then.
  std::optional<StoredTensors> stored;
  std::vector<char> columns;
  const auto give_columns = [&](const TensorSpec& tensor, ElementRange part,
                                TensorSink sink) -> absl::Status {
    if (!stored.has_value()) {
      MT_ASSIGN_OR_RETURN(stored, StoredTensors::Open(files, checkpoint));
    }
    const std::string name = HfColumnsName(tensor.name_on_disk(), tensor.source_begin,
                                           tensor.source_begin + tensor.columns);
    const StoredTensor* const found = stored->Find(name);
    if (found == nullptr) {
      return absl::DataLossError(absl::StrCat(checkpoint, " has no tensor \"", name, "\""));
    }
    const int64_t size = DTypeBytes(dtype);
    columns.resize(static_cast<size_t>((part.end - part.begin) * size));
    MT_RETURN_IF_ERROR(found->reader->Read(*found->tensor, part.begin * size, columns.data(),
                                           std::ssize(columns)));
    return sink(columns.data(), std::ssize(columns));
  };
  return ExportHfDirectory(
      checkpoint, layout, dtype,
      [&](int index) -> absl::StatusOr<Tile> {
        // The sections that are null are not read.
        const Tile tile = MakeWeightsTile(&layout.tiles[index], dtype, weights.get());
        MT_RETURN_IF_ERROR(LoadCheckpointTile(checkpoint, manifest, layout, index, tile, files));
        return tile;
      },
      directory, kHfShardBytes, files, give_columns);
}

}  // namespace megatrain
