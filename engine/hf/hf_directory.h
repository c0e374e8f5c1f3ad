// Reading and writing Hugging Face model directories.
#ifndef MEGATRAIN_ENGINE_HF_HF_DIRECTORY_H_
#define MEGATRAIN_ENGINE_HF_HF_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_config.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"

namespace megatrain {

// Parses and checks `directory`/config.json. An unsupported family is refused by name with the list
// of those that are; a key that changes the mathematics and is not understood is refused, never
// ignored.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory,
                                            FileSystem* files = PosixFileSystem());

// The weights of a HF directory: model.safetensors, or the shards that model.safetensors.index.json
// names. Opening checks that every tensor of the layout is there with its shape and a dtype of F32,
// F16 or BF16, and that nothing else is (known buffers such as rotary inv_freq and a tied head's
// duplicate excepted).
class HfWeights {
 public:
  // `files` must outlive the weights.
  static absl::StatusOr<std::unique_ptr<HfWeights>> Open(const std::string& directory,
                                                         const ModelLayout& layout,
                                                         FileSystem* files = PosixFileSystem());
  virtual ~HfWeights() = default;
  // Fills the tile's master (weights and remainder), zeroes moments and padding. Values that are
  // not finite, or whose BF16 half would be infinite, are refused with the tensor's name. Memory
  // beside the tile stays under 64 MiB. Moments and remainder may be null: only weights are then
  // filled, rounded as EncodeMaster does. Thread safe for different tiles.
  virtual absl::Status LoadTile(int index, const Tile& tile) const = 0;
  // The narrower of FP32 and BF16 that holds every stored weight exactly.
  virtual DType ExactDType() const = 0;
};

// Fills a tile's master with random weights as HF does it (normal with initializer_range, norms 1,
// biases 0), zeroes moments and padding. Depends on (seed, tensor name, element) alone, and is
// therefore the same for any number of threads. `pool` may be null.
void InitializeTile(const ModelConfig& config, uint64_t seed, const Tile& tile,
                    ThreadPool* pool = nullptr);

// Of one file of weights, at most: what transformers writes.
inline constexpr int64_t kHfShardBytes = int64_t{5000000000};

// Writes a HF directory: config.json with torch_dtype rewritten, tokenizer and generation files
// copied through from `source_directory`, weights as model.safetensors, or shards of at most
// `shard_bytes` with an index. Written as `directory`.tmp, fsynced, renamed; an existing non-empty
// directory is replaced only if it is itself an export of this model (config.json there and nothing
// foreign), else refused; so is `source_directory` itself. `get_tile(i)` is called in forward
// order; a tile may hold its weights in another type than `weight_dtype`. A disk that fills up is
// ResourceExhausted, and `directory` is then as it was.
absl::Status ExportHfDirectory(const std::string& source_directory, const ModelLayout& layout,
                               DType weight_dtype,
                               absl::FunctionRef<absl::StatusOr<Tile>(int)> get_tile,
                               const std::string& directory, int64_t shard_bytes = kHfShardBytes,
                               FileSystem* files = PosixFileSystem());

// `init`: writes a HF directory with random weights for a named preset; the tokenizer is bytes for
// the small ones, the others have none. With config_only, no weights. Unknown preset: an error with
// the list. A directory that exists must be empty. Weights are made and written piece by piece: a
// few dozen MiB of memory for any size. `pool` may be null.
std::vector<std::string> PresetNames();
absl::Status InitializeHfDirectory(const std::string& preset, uint64_t seed, bool config_only,
                                   const std::string& directory, ThreadPool* pool = nullptr,
                                   FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_DIRECTORY_H_
