// The tensors of a wrapper's directory (config/wrapper_family.h) that are not the text model's:
// vision tower, projector. A job does not load them. Exports and checkpoints copy them, byte for
// byte, from the directory that the model was read from, so that each is a whole model of its own.
#ifndef MEGATRAIN_ENGINE_HF_CARRIED_TENSORS_H_
#define MEGATRAIN_ENGINE_HF_CARRIED_TENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/hf/safetensors.h"
#include "engine/model/model_description.h"

namespace megatrain {

// The names and places of a directory's carried tensors. Holds no file open between calls, and one
// at a time while it reads. Thread safety: const methods may be called from several threads.
class CarriedTensors {
 public:
  // Holds no tensors.
  CarriedTensors() = default;
  // Reads the headers of the weights files in `directory`. If `wrapper` carries no tensors, reads
  // nothing and returns an empty object. Returns FailedPrecondition if the carried tensors differ
  // in number or in bytes from what `wrapper` says, or if `digest` is not empty and differs from
  // theirs. Returns NotFound, naming the file, if one is missing, and the errors of
  // FindHfWeightFiles and SafetensorsReader::Open.
  static absl::StatusOr<CarriedTensors> Open(FileSystem* files, const std::string& directory,
                                             const WrapperDescription& wrapper,
                                             const std::string& digest = "");

  // Returns the tensors' names on disk.
  const std::vector<std::string>& names() const { return names_; }
  // Returns a hash of the tensors' names, types and shapes, in 32 hex digits; "" if there are no
  // tensors. It does not depend on the files that they lie in.
  const std::string& digest() const { return digest_; }
  // Writes all the tensors to the new file `path` and syncs it. Returns the finished writer, for
  // its sizes and hash. Returns FailedPrecondition if a tensor is no longer there with the type and
  // shape that it had in Open; its values are not compared. Returns the errors of SafetensorsReader
  // and SafetensorsWriter. After an error `path` may hold a part. `files` must be the file system
  // that was given to Open, and must outlive the result.
  absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Write(FileSystem* files,
                                                           const std::string& path) const;

 private:
  std::map<std::string, std::vector<SafetensorsTensor>> sources_;  // by path, in the file's order
  std::vector<std::string> names_;
  std::string digest_;
};

// Sets the name prefixes in `model.wrapper`, and the number and bytes of carried tensors, from the
// tensors in `directory`. If weights files are missing there, these stay as they are.
//
// Sets `model.tied_embeddings` to false if the directory has an LM head whose type, shape or first
// MiB differs from the embedding's. transformers does not tie such a head, whatever config.json
// says. If weights files are missing, a head that the index names is enough. HfWeights compares the
// whole of a head whose beginning is equal.
//
// Returns InvalidArgument, naming two tensors, if they are named in different ways, and the errors
// of StoredTensors::Open and of reading. REQUIRES: model.wrapper.is_there(), and it is as
// ParseModelDescription has made it.
absl::Status CompleteWrapper(FileSystem* files, const std::string& directory,
                             ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CARRIED_TENSORS_H_
