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

// The default limit on the size of a weights file, as in transformers 4.
inline constexpr int64_t kHfShardBytes = int64_t{5000000000};

// The greatest size of a strip of several rows (WriteHfWeights).
inline constexpr int64_t kStripBytes = int64_t{8} << 20;

// Takes the data of a tensor, or of a part of one, in order, in pieces of any size. It copies them.
using TensorSink = absl::FunctionRef<absl::Status(const void* data, int64_t bytes)>;

// Gives `sink` the elements `part` of what tile `tile` has of a tensor, in the order of
// RunsOf(tensor, part). `part` is all that the tile has or, for a tensor with columns, whole rows.
// REQUIRES: it gives exactly these elements, as WeightDType(tensor, dtype), or returns an error.
using EmitTensor = absl::FunctionRef<absl::Status(int tile, const TensorSpec& tensor,
                                                  ElementRange part, TensorSink sink)>;

// Writes every tensor of `layout` as `dtype` (buffers as FP32) into `directory`, in files of at
// most `shard_bytes`. A single tensor that is larger gets a file of its own. One file is named
// model.safetensors; several have an index. Syncs each file but not the directory. Returns the
// errors of `emit`, of MakeSafetensorsHeader, of PlacedWriter and of CarriedTensors::Write, and
// Internal if `emit` gave too few bytes of a tensor without columns. After an error the directory
// may hold incomplete files. REQUIRES: `directory` is there.
//
// Calls `emit` on the calling thread, tile by tile in forward order, once for each tensor of a tile
// but those with columns. In a file whole tensors follow one another, buffers first, so that every
// tensor is aligned to its element size. Data goes straight to its place, and a file is closed as
// soon as it has all of its data.
//
// A matrix with columns (TensorSpec::columns: several tiles have a part of each row) is emitted
// after all tiles, because the columns of a tile are scattered over its file. It is emitted in
// strips of rows, each strip from tile to tile. One strip is in memory, of at most kStripBytes or
// one row.
//
// The tensors of `carried`, if there are any, go to one more file of any size, the last one.
absl::Status WriteHfWeights(FileSystem* files, const std::string& directory,
                            const ModelLayout& layout, DType dtype, int64_t shard_bytes,
                            EmitTensor emit, const CarriedTensors& carried = {});

// Returns OK if ReplaceDirectory can replace `directory` as things are now. Returns
// FailedPrecondition if it is a mount point, or if what has one of the names beside it was not left
// by ReplaceDirectory. Also returns the errors of CheckWritable for its parent and for these.
absl::Status CheckCanReplaceDirectory(FileSystem* files, const std::string& directory);

// Replaces `directory`, or the one that a link of this name leads to, by a new one:
//   1. calls `write`, once, to fill `directory`.export-tmp and to sync its files, and syncs it;
//   2. renames `directory`, if it exists, to `directory`.export-previous;
//   3. renames `directory`.export-tmp to `directory`;
//   4. removes `directory`.export-previous. It stays if that fails, and OK is returned.
//
// After an error before step 3 is done, `directory` is as it was. If undoing step 2 fails too, the
// old directory is at `directory`.export-previous. A crash between steps 2 and 3 leaves it there
// too. After a later error `directory` is the new one. Meanwhile `directory`.export-lock is locked.
// Returns FailedPrecondition if another caller writes the same directory.
//
// Removes what earlier calls left under the two other names if it holds only files of a model
// (IsHfFileName). Returns FailedPrecondition if it holds others or is no directory, the error of
// `write`, and those of `files`. Creates missing parents of `directory`. REQUIRES: what is at
// `directory` may be lost.
absl::Status ReplaceDirectory(FileSystem* files, const std::string& directory,
                              absl::FunctionRef<absl::Status(const std::string& temporary)> write);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_WRITER_H_
