// Writes the weights of a Hugging Face directory as one file, or as shards with an index.
#ifndef MEGATRAIN_ENGINE_HF_HF_WRITER_H_
#define MEGATRAIN_ENGINE_HF_HF_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"
#include "engine/hf/safetensors.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// The default limit on the size of a weights file, as in transformers.
inline constexpr int64_t kHfShardBytes = int64_t{5000000000};

// Writes every tensor of `layout` as `dtype` into `directory`, in forward order, in files of at
// most `shard_bytes`. A single tensor that is larger gets a file of its own. `emit` must append the
// whole data of the given tensor to the writer; its error is returned. Syncs each file but not the
// directory.
absl::Status WriteHfWeights(
    FileSystem* files, const std::string& directory, const ModelLayout& layout, DType dtype,
    int64_t shard_bytes,
    absl::FunctionRef<absl::Status(int tile, const TensorSpec& tensor, SafetensorsWriter* writer)>
        emit);

// Replaces `directory` by a new one. Calls `write` once to fill `directory`.tmp, syncs it, renames
// the old directory to `directory`.previous and the new one to `directory`, and removes the old
// one.
//
// After an error `directory` is unchanged if the second renaming was not done, and the new one
// otherwise. If putting the old one back fails, or after a crash between the two renamings, the old
// one is at `directory`.previous. Leftovers under the two names are removed if they hold only files
// of a model. Otherwise the call returns FailedPrecondition.
absl::Status ReplaceDirectory(FileSystem* files, const std::string& directory,
                              absl::FunctionRef<absl::Status(const std::string& temporary)> write);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_WRITER_H_
