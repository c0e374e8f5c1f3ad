// Writing the weights of a HF directory, one file or shards with an index.
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

// Writes every tensor of `layout` as `dtype` into `directory`, in forward order, in files of at
// most `shard_bytes` (a single tensor that is longer gets a file of its own). `emit` appends one
// tensor's data to the writer. Files are synced, the directory is not.
absl::Status WriteHfWeights(
    FileSystem* files, const std::string& directory, const ModelLayout& layout, DType dtype,
    int64_t shard_bytes,
    absl::FunctionRef<absl::Status(int tile, const TensorSpec& tensor, SafetensorsWriter* writer)>
        emit);

// Fills a new directory through `write(temporary)` and puts it in `directory`'s place: written as
// `directory`.tmp, synced, renamed. What was there before is moved to `directory`.previous and
// removed after that; if anything fails it is as it was. Leftovers of those two names are removed
// if they hold nothing but model files, else refused.
absl::Status ReplaceDirectory(FileSystem* files, const std::string& directory,
                              absl::FunctionRef<absl::Status(const std::string& temporary)> write);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_WRITER_H_
