// The tensors of a wrapper's directory that are not the text model's: vision tower, projector. They
// are never in the memory of a job. Exports and checkpoints copy them, byte for byte, from the
// directory that the model was read from, so that each is a whole model of its own.
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

// The file of these tensors in a checkpoint; the index names it. Programs that take all weights
// files of a directory look for "model*.safetensors".
inline constexpr char kCarriedFileName[] = "model-carried.safetensors";

// Holds no file open between calls, and one at a time while it reads.
class CarriedTensors {
 public:
  // None.
  CarriedTensors() = default;
  // Reads the headers of the weights of `directory`. Returns FailedPrecondition if the tensors are
  // not as many, or as long, as `wrapper` says, or have another digest than `digest` where that is
  // not empty, because the directory has changed. Returns NotFound, naming the file, if one is
  // missing, and the errors of FindHfWeightFiles and SafetensorsReader.
  static absl::StatusOr<CarriedTensors> Open(FileSystem* files, const std::string& directory,
                                             const WrapperDescription& wrapper,
                                             const std::string& digest = "");

  const std::vector<std::string>& names() const { return names_; }
  // Returns 32 hex digits: a hash of the names, types and shapes of the tensors, which does not
  // depend on the files that they lie in; "" if there are none.
  const std::string& digest() const { return digest_; }
  // Writes all of them to a new file, which is synced. Returns the finished writer. Returns
  // FailedPrecondition if a file is no longer what it was when it was opened. `files` must be the
  // file system that they were opened through.
  absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Write(FileSystem* files,
                                                           const std::string& path) const;

 private:
  std::map<std::string, std::vector<SafetensorsTensor>> sources_;  // by path, in the file's order
  std::vector<std::string> names_;
  std::string digest_;
};

// Completes the description of a wrapper from the names of the tensors in `directory`, if it has
// weights: the prefixes and what is carried. transformers does not tie a head that is there and
// differs from the embedding, whatever config.json says; then `model.tied_embeddings` becomes
// false. Returns InvalidArgument, naming two tensors, if they are named in different ways.
absl::Status ReadWrapperNames(FileSystem* files, const std::string& directory,
                              ModelDescription& model);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CARRIED_TENSORS_H_
