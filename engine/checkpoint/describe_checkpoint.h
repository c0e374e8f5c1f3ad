// What a checkpoint holds, for people and for programs.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DESCRIBE_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DESCRIBE_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

struct CheckpointDescription {
  std::string text;  // lines "key  value"
  std::string json;  // one object with the same content
};

// `path` holds a checkpoint: a manifest.
bool IsCheckpoint(const std::string& path, FileSystem* files = PosixFileSystem());

// Reads the manifest and the headers of the weight files, no tensors: damage in these is not seen
// (VerifyCheckpoint sees it).
absl::StatusOr<CheckpointDescription> DescribeCheckpoint(const std::string& path,
                                                         FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DESCRIBE_CHECKPOINT_H_
