// Reads and writes Hugging Face model directories.
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

// Reads `directory`/config.json. Returns NotFound if there is no such directory or file, and
// otherwise the errors of ParseModelConfig, which refuses every key that it does not understand.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory,
                                            FileSystem* files = PosixFileSystem());

// The weights of a Hugging Face directory: model.safetensors, or the shards that
// model.safetensors.index.json names.
//
// Thread safety: const methods may be called from several threads, LoadTile for different tiles.
class HfWeights {
 public:
  // Opens the files and reads their headers. Every tensor of the layout must be there with its
  // shape and dtype F32, F16 or BF16. No other tensors may be there, except known buffers such as
  // rotary inv_freq and the duplicate of a tied head. Returns NotFound if there are no weights, and
  // InvalidArgument, naming the tensors that are wrong. `files` must outlive the result; `layout`
  // is copied.
  static absl::StatusOr<std::unique_ptr<HfWeights>> Open(const std::string& directory,
                                                         const ModelLayout& layout,
                                                         FileSystem* files = PosixFileSystem());
  virtual ~HfWeights() = default;
  // Reads tile `index` (from 0) into `tile`: fills the masters (weights and remainder) and sets
  // moments and padding to zero. Moments may be null. If the remainder is null, BF16 weights are
  // rounded as EncodeMaster does. Returns InvalidArgument, naming the tensor, for a value that is
  // not finite or whose BF16 half would be infinite. Returns the errors of reading. Uses less than
  // 64 MiB of memory besides the tile.
  virtual absl::Status LoadTile(int index, const Tile& tile) const = 0;
  // Returns the narrower of FP32 and BF16 that holds every stored weight exactly.
  virtual DType ExactDType() const = 0;
};

// Fills the masters of `tile` with random weights as transformers does (normal with
// initializer_range; norms 1, biases 0), and sets moments and padding to zero. The values depend on
// `seed`, the tensors' names and the element numbers, not on the number of threads. `pool` may be
// null.
void InitializeTile(const ModelConfig& config, uint64_t seed, const Tile& tile,
                    ThreadPool* pool = nullptr);

// The default limit on the size of a weights file, as in transformers.
inline constexpr int64_t kHfShardBytes = int64_t{5000000000};

// Writes a Hugging Face directory: config.json with torch_dtype rewritten, the tokenizer and
// generation files of `source_directory`, and the weights as model.safetensors or as shards of at
// most `shard_bytes` with an index. `get_tile(i)` is called once for each tile in forward order, on
// the calling thread. The tile must stay valid until the next call. Its weights may have another
// type than `weight_dtype`.
//
// An existing `directory` that is not empty is replaced only if it is an export of a model with the
// same tensors and holds nothing else. Any other directory, and `source_directory` itself, is
// refused with FailedPrecondition. If writing fails, for instance with ResourceExhausted for a full
// disk, `directory` is unchanged; ReplaceDirectory in hf_writer.h describes crashes.
absl::Status ExportHfDirectory(const std::string& source_directory, const ModelLayout& layout,
                               DType weight_dtype,
                               absl::FunctionRef<absl::StatusOr<Tile>(int)> get_tile,
                               const std::string& directory, int64_t shard_bytes = kHfShardBytes,
                               FileSystem* files = PosixFileSystem());

// Returns the names of the presets that InitializeHfDirectory takes.
std::vector<std::string> PresetNames();
// Writes a Hugging Face directory with random weights for a preset. Presets with the bytes
// vocabulary also get its tokenizer; the others have none. With `config_only` there are no weights.
// Weights are made in pieces, in a few dozen MiB of memory whatever the model's size. `pool` may be
// null.
//
// Returns InvalidArgument, listing the presets, for an unknown one, and FailedPrecondition if
// `directory` exists and is not an empty directory. If writing fails, `directory` is unchanged;
// ReplaceDirectory in hf_writer.h describes crashes.
absl::Status InitializeHfDirectory(const std::string& preset, uint64_t seed, bool config_only,
                                   const std::string& directory, ThreadPool* pool = nullptr,
                                   FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_DIRECTORY_H_
