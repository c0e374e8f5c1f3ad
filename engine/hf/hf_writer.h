// Writes the weights of a Hugging Face directory as one file, or as shards with an index.
#ifndef MEGATRAIN_ENGINE_HF_HF_WRITER_H_
#define MEGATRAIN_ENGINE_HF_HF_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"
#include "engine/hf/carried_tensors.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// The default limit on the size of a weights file, as in transformers.
inline constexpr int64_t kHfShardBytes = int64_t{5000000000};

inline constexpr int64_t kStripBytes = int64_t{8} << 20;

// Takes the data of a tensor, or of a part of one, in pieces of any size from its begin on.
using TensorSink = absl::FunctionRef<absl::Status(const void* data, int64_t bytes)>;

// Gives the elements `part` of what a tile has of a tensor to `sink`, in the order of
// RunsOf(tensor, part): all of it, or whole rows of columns.
using EmitTensor = absl::FunctionRef<absl::Status(int tile, const TensorSpec& tensor,
                                                  ElementRange part, TensorSink sink)>;

// Writes every tensor of `layout` as `dtype` (buffers as FP32) into `directory`, in files of at
// most `shard_bytes`. A single tensor that is larger gets a file of its own. Errors of `emit` are
// returned. Syncs each file but not the directory.
//
// Tensors are emitted tile by tile, each tile once, in forward order. Their data goes straight to
// its place: in a file whole tensors follow one another, its buffers first, so that every tensor is
// aligned to its element size. The files that have all their tensors are closed.
//
// A matrix whose columns lie in several tiles comes last, because a tile's are scattered over the
// whole file: it is emitted in strips of rows, each strip from tile to tile. One strip is in
// memory, of kStripBytes or a row.
//
// The tensors of `carried`, if there are any, have one more file, the last one.
absl::Status WriteHfWeights(FileSystem* files, const std::string& directory,
                            const ModelLayout& layout, DType dtype, int64_t shard_bytes,
                            EmitTensor emit, const CarriedTensors& carried = {});

// Replaces `directory` by a new one:
//   1. calls `write`, once, to fill `directory`.tmp, and syncs that;
//   2. renames `directory`, if it exists, to `directory`.previous;
//   3. renames `directory`.tmp to `directory`;
//   4. removes `directory`.previous.
//
// An error before step 3 is done leaves `directory` as it was, or, if undoing step 2 fails too,
// leaves the old one at `directory`.previous. So does a crash between steps 2 and 3. A later error
// leaves the new one. Leftovers of earlier calls under the two other names are removed if they hold
// only files of a model; FailedPrecondition is returned if they hold others.
absl::Status ReplaceDirectory(FileSystem* files, const std::string& directory,
                              absl::FunctionRef<absl::Status(const std::string& temporary)> write);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_WRITER_H_
