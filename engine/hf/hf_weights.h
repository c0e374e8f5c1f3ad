// HfWeights reads the weights of a Hugging Face model directory.
#ifndef MEGATRAIN_ENGINE_HF_HF_WEIGHTS_H_
#define MEGATRAIN_ENGINE_HF_HF_WEIGHTS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// The weights of a Hugging Face directory: model.safetensors, or the shards that
// model.safetensors.index.json names, or the files of a checkpoint.
//
// Thread safety: const methods may be called from several threads, LoadTile with different tiles.
class HfWeights {
 public:
  // Opens the files and reads their headers. Every tensor of the layout must be there with its
  // shape and dtype F32, F16 or BF16. It may lie in parts (HfPartName and HfColumnsName in
  // hf_format.h). A layer whose experts are stored as ExpertTensors::kTransposed may have its
  // expert tensors in MXFP4: NAME_blocks and NAME_scales, both U8. No other tensors may be there,
  // except rotary inv_freq, the duplicate of a tied head, those that a wrapper carries, and those
  // that the model's family ignores.
  //
  // Returns InvalidArgument, naming up to five tensors that are wrong, or one that is in two files
  // or not where the index says. Returns the errors of FindHfWeightFiles (NotFound if there are no
  // weights) and of SafetensorsReader::Open. `files` must outlive the result; `layout` is copied.
  static absl::StatusOr<std::unique_ptr<HfWeights>> Open(const std::string& directory,
                                                         const ModelLayout& layout,
                                                         FileSystem* files = PosixFileSystem());
  virtual ~HfWeights() = default;
  // Reads the elements that `tile` holds of tile `index` (from 0), and little more; with the
  // embedding also those of a tied head, if the files have one. Fills the masters (weights and
  // remainder, tile.h) and sets moments and padding to zero. Moments may be null. If the remainder
  // is null, BF16 weights are rounded as EncodeMaster does. Buffers are FP32 in either precision.
  // Uses less than 64 MiB of memory besides the tile.
  //
  // Returns InvalidArgument, naming the tensor, for a value that is not finite or, in a BF16 tile,
  // whose BF16 half would be infinite, and for a tied head that differs from the embedding, even if
  // only in dtype. Returns the errors of reading. After an error the tile is partly filled.
  // REQUIRES: tile.layout is tile `index` of the layout, and tile.weights is not null.
  virtual absl::Status LoadTile(int index, const Tile& tile) const = 0;
  // Returns BF16 if all tensors but buffers are BF16 or MXFP4 in the files, so that BF16 holds them
  // exactly. Else returns FP32.
  virtual DType ExactDType() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_WEIGHTS_H_
