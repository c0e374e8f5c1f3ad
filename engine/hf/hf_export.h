// Writes a model with its weights as a Hugging Face directory.
#ifndef MEGATRAIN_ENGINE_HF_HF_EXPORT_H_
#define MEGATRAIN_ENGINE_HF_HF_EXPORT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_writer.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// Gives the elements `part` of what a tile has of a matrix whose columns lie in several tiles.
using GiveColumns =
    std::function<absl::Status(const TensorSpec& tensor, ElementRange part, TensorSink sink)>;

// Writes a Hugging Face directory: config.json as RewriteConfigDType changes it, the tokenizer and
// generation files of `source`, and the weights as model.safetensors or as shards of at
// most `shard_bytes` with an index. What a wrapper carries is copied from `source`, whose
// directory must still have it. `get_tile(i)` is called on the calling thread, once for each tile
// in forward order. The tile must stay valid until the next call. It is whole, and its weights may
// have another type than `weight_dtype`.
//
// Where tiles have columns of a matrix, strips of its rows are asked for behind all tiles
// (WriteHfWeights): of `give_columns`, and without it of get_tile's tiles, from the first to the
// last for each strip. The data that give_columns gives must have `weight_dtype`.
//
// An existing `directory` that is not empty is replaced only if it is an export of a model with the
// same tensors and holds nothing else. Any other directory, and that of `source`, is
// refused with FailedPrecondition. If writing fails, for instance with ResourceExhausted for a full
// disk, `directory` is unchanged; ReplaceDirectory in hf_writer.h describes crashes.
absl::Status ExportHfDirectory(const HfSideFiles& source, const ModelLayout& layout,
                               DType weight_dtype,
                               absl::FunctionRef<absl::StatusOr<Tile>(int)> get_tile,
                               const std::string& directory, int64_t shard_bytes = kHfShardBytes,
                               FileSystem* files = PosixFileSystem(),
                               const GiveColumns& give_columns = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_EXPORT_H_
