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

// Gives `sink` the elements `part` of `tensor`, which has some columns of a matrix
// (TensorSpec::columns). `part` is whole rows of these columns, and is given as EmitTensor says.
using GiveColumns =
    std::function<absl::Status(const TensorSpec& tensor, ElementRange part, TensorSink sink)>;

// Returns the FailedPrecondition that ExportHfDirectory would return for `directory`, before
// anything is written. `source` is the directory of the model. Returns the errors of listing
// `directory`, and those of CheckCanReplaceDirectory.
absl::Status CheckExportTarget(const std::string& source, const ModelLayout& layout,
                               const std::string& directory, FileSystem* files);

// Writes a Hugging Face directory: config.json and the side files of `source`, as CopyHfSideFiles
// does, and the weights as model.safetensors or as shards with an index, as WriteHfWeights cuts
// them at `shard_bytes`. The tensors that a wrapper carries are copied from the directory of
// `source`, with the errors of CarriedTensors.
//
// `get_tile(i)` is called on the calling thread, for the tiles in forward order; its errors are
// returned. The tile must be whole and stay valid until the next call. Its weights may have another
// type than `weight_dtype`; of the other sections the remainder alone is used, and may be null.
//
// If the columns of a matrix lie in several tiles, strips of its rows are written after all other
// tensors (WriteHfWeights). `give_columns` gives them, as `weight_dtype`. If it is null, get_tile
// is called again for each strip, for the first to the last of these tiles.
//
// An existing `directory` that is not empty is replaced only if all its files have names that an
// export may have (IsHfFileName) and its config.json describes a model with the same tensors.
// Returns FailedPrecondition for any other directory and for that of `source`. If `directory` is a
// symbolic link, the directory that it leads to is replaced. Returns the errors of CopyHfSideFiles,
// WriteHfWeights and ReplaceDirectory (hf_writer.h). If writing fails, for instance with
// ResourceExhausted for a full disk, `directory` is unchanged. ReplaceDirectory describes crashes,
// and errors that come after the new directory has its name.
absl::Status ExportHfDirectory(const HfSideFiles& source, const ModelLayout& layout,
                               DType weight_dtype,
                               absl::FunctionRef<absl::StatusOr<Tile>(int)> get_tile,
                               const std::string& directory, int64_t shard_bytes = kHfShardBytes,
                               FileSystem* files = PosixFileSystem(),
                               const GiveColumns& give_columns = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_EXPORT_H_
