// Opens the files of a directory's weights and finds the tensors of a model in them.
#ifndef MEGATRAIN_ENGINE_HF_WEIGHT_FILES_H_
#define MEGATRAIN_ENGINE_HF_WEIGHT_FILES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/hf/master_convert.h"
#include "engine/hf/safetensors.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// A tensor in a file. The pointers are valid as long as the StoredTensors or WeightFiles that it is
// from.
struct StoredTensor {
  const SafetensorsReader* reader = nullptr;
  const SafetensorsTensor* tensor = nullptr;
};

// Returns whether two tensors have the same type and shape, and the same bytes from byte `begin` of
// their data to byte `end` or, if that comes first, their end. Returns the errors of reading.
absl::StatusOr<bool> SameBytes(const StoredTensor& a, const StoredTensor& b, int64_t begin,
                               int64_t end);

// All tensors in the files of a directory, which stay open. Thread safety: const methods may be
// called from several threads.
class StoredTensors {
 public:
  // Opens the files. Returns the errors of FindHfWeightFiles and SafetensorsReader::Open, and
  // InvalidArgument for a tensor that is in two files or not where the index says. `files` must
  // outlive the result.
  static absl::StatusOr<StoredTensors> Open(FileSystem* files, const std::string& directory);

  // Returns the tensor of that name on disk, valid as long as this, or null if there is none.
  const StoredTensor* Find(const std::string& name) const;
  // Returns all tensors by their names on disk.
  const std::map<std::string, StoredTensor>& by_name() const { return by_name_; }

 private:
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  std::map<std::string, StoredTensor> by_name_;
};

// Returns a line for people about the tensors in `directory` that the model's family ignores
// (engine/hf/config/ignored_tensors.h). Returns "" if there are none, or if ReadHfTensorNames
// returns NotFound. Returns its other errors.
absl::StatusOr<std::string> DescribeIgnoredTensors(FileSystem* files, const std::string& directory,
                                                   const ModelDescription& model);

// The place of a model's tensor in the files: in parts, or in MXFP4.
struct WeightSource {
  struct Part {
    int64_t begin = 0;  // its first element in the whole tensor; with `columns`, its first column
    // If > 0, it has this many columns of every row of a matrix. If 0, its elements follow one
    // another in the whole tensor.
    int64_t columns = 0;
    StoredTensor stored;
    FileDType dtype = FileDType::kF32;
  };
  std::vector<Part> parts;  // of the whole tensor, in order; usually one; empty if it is in MXFP4
  // In MXFP4 only: the values of a tensor [E, K, N] (experts, inputs, outputs), transposed.
  StoredTensor blocks;  // U8 [E, N, K / 32, 16]
  StoredTensor scales;  // U8 [E, N, K / 32]
};

// The open weights files of a directory, which have all tensors of a layout. Thread safety: const
// methods may be called from several threads.
class WeightFiles {
 public:
  // Opens the files. HfWeights::Open says which tensors they must have, and the errors. `files`
  // must outlive the result; `layout` is used during the call.
  static absl::StatusOr<std::unique_ptr<WeightFiles>> Open(FileSystem* files,
                                                           const std::string& directory,
                                                           const ModelLayout& layout);

  // Returns where the tensor is, valid as long as this. REQUIRES: `name` is a TensorSpec::name of
  // the layout.
  const WeightSource& SourceOf(const std::string& name) const { return sources_.at(name); }
  // Returns the tensor of that name on disk, valid as long as this, or null if there is none.
  const StoredTensor* Find(const std::string& name) const { return stored_.Find(name); }

 private:
  StoredTensors stored_;
  std::map<std::string, WeightSource> sources_;  // by the names of the layout
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_WEIGHT_FILES_H_
