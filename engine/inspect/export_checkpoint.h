// A Hugging Face directory out of a checkpoint.
#ifndef MEGATRAIN_ENGINE_INSPECT_EXPORT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_INSPECT_EXPORT_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"

namespace megatrain {

// Writes the checkpoint's weights, BF16 or FP32 as they were trained, with config.json and the
// tokenizer's files beside them. Checksums are compared as the bytes pass. Memory: the weights of
// the largest tile.
absl::Status ExportCheckpoint(const std::string& checkpoint, const std::string& directory,
                              FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_EXPORT_CHECKPOINT_H_
