// The file names and the index of a Hugging Face model directory, shared by its readers and
// writers.
#ifndef MEGATRAIN_ENGINE_HF_HF_FORMAT_H_
#define MEGATRAIN_ENGINE_HF_HF_FORMAT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"

namespace megatrain {

inline constexpr char kConfigFileName[] = "config.json";
// The largest config.json that is accepted. Ordinary ones have a few KB.
inline constexpr int64_t kConfigBytesMax = int64_t{4} << 20;

// The names of the weights file where it is the only one, and else of the index that maps each
// tensor to its shard.
inline constexpr char kHfWeightsFileName[] = "model.safetensors";
inline constexpr char kHfIndexFileName[] = "model.safetensors.index.json";
// The file of a wrapper's carried tensors (carried_tensors.h) in a checkpoint; the index names it.
// Its name is such that programs which take all "model*.safetensors" of a directory find it.
inline constexpr char kCarriedFileName[] = "model-carried.safetensors";
// The name of the index of a directory whose tensors lie in parts (HfPartName). Other programs
// would pass over the parts and put random weights in their place. Without the usual index they
// refuse the directory.
inline constexpr char kHfPartsIndexFileName[] = "model.parts.index.json";
// The largest index that is accepted. An entry takes about 90 bytes, so this is enough for ten
// million tensors.
inline constexpr int64_t kHfIndexBytesMax = int64_t{1} << 30;

// The side files: those besides config.json and the weights that are needed to use a model. They
// are copied without being parsed. Further chat templates, NAME.jinja, lie in a directory of their
// own, kHfTemplatesDirectory.
inline constexpr char kHfTemplatesDirectory[] = "additional_chat_templates";
inline constexpr const char* kHfSideFileNames[] = {
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
};

// Returns the names, within `directory`, of kHfSideFileNames and of the further chat templates that
// it has. The former are all in the result and need not be there; the latter are there. Templates
// whose names are not UTF-8 are passed over: no manifest can name them. Returns the errors of
// listing the templates.
absl::StatusOr<std::vector<std::string>> ListHfSideFiles(FileSystem* files,
                                                         const std::string& directory);

// Returns for example "model-00002-of-00017.safetensors". REQUIRES: 1 <= shard <= shards.
std::string HfShardName(int64_t shard, int64_t shards);

// Returns true if an exported directory may hold a file of this path, relative to the directory. An
// export replaces only a directory whose files are all such (ExportHfDirectory).
bool IsHfFileName(const std::string& name);

// Returns the paths, relative to `directory`, of the files in it and in its kHfTemplatesDirectory.
// Other directories are listed by their names, like files. Returns the errors of
// FileSystem::ListDirectory.
absl::StatusOr<std::vector<std::string>> ListHfDirectory(FileSystem* files,
                                                         const std::string& directory);

// Returns the name of the part of a tensor with indices [begin, end) of the first dimension:
// "NAME[begin:end]". A stacked tensor, or a matrix, may lie in parts in several files of a
// checkpoint.
std::string HfPartName(const std::string& name, int64_t begin, int64_t end);
// Returns the name of a matrix's part with columns [begin, end): "NAME[:,begin:end]".
std::string HfColumnsName(const std::string& name, int64_t begin, int64_t end);
// Returns the name of the whole tensor that `name` is a part of, or `name` if it names no part.
std::string HfWholeName(const std::string& name);

// Maps the name of each tensor to the name of its file.
using HfWeightMap = std::map<std::string, std::string>;

// Returns the text of the index. `total_bytes` is the size of all tensors without headers.
std::string MakeHfIndex(const HfWeightMap& weight_map, int64_t total_bytes);
// Parses an index; `path` begins messages. Returns InvalidArgument if it is no JSON and, naming the
// key, if it is malformed, names no tensor, or a file name is not that of a file beside it.
absl::StatusOr<HfWeightMap> ParseHfIndex(std::string_view json, const std::string& path);

// The files that hold a directory's weights: model.safetensors if it is there, else those that the
// index names. The index is kHfIndexFileName if it is there, else kHfPartsIndexFileName.
struct HfWeightFiles {
  std::vector<std::string> paths;  // `directory`/NAME, each once, ascending
  std::string index;               // the path of the index that was read; "" if none was
  HfWeightMap weight_map;          // of the index; empty if none was read
};
// Finds the weights files of `directory`. Reads an index but opens no weights, so files that the
// index names may be missing. Returns NotFound, naming what was looked for, if there is neither
// model.safetensors nor an index, OutOfRange for an index longer than kHfIndexBytesMax, and the
// errors of reading and of ParseHfIndex.
absl::StatusOr<HfWeightFiles> FindHfWeightFiles(FileSystem* files, const std::string& directory);
// Returns OK if all weights files of `directory` are there. Returns NotFound, naming a missing one,
// if they are not, and the errors of FindHfWeightFiles.
absl::Status CheckHfWeightFilesExist(FileSystem* files, const std::string& directory);

// Returns the names of the whole tensors (HfWholeName) that the index lists or, without an index,
// that model.safetensors has. Returns the errors of FindHfWeightFiles and of
// SafetensorsReader::Open.
absl::StatusOr<std::set<std::string>> ReadHfTensorNames(FileSystem* files,
                                                        const std::string& directory);

// Returns the text of a config.json, changed to describe weights of `weight_dtype`. Sets `dtype`
// and `torch_dtype`, also in text_config, where they are there. Adds torch_dtype at the top level
// if neither is there. Removes quantization_config. Sets the family's IgnoredTensors::count_key, if
// it is there, to 0. Keeps all other keys and their order. Returns InvalidArgument, beginning with
// `path`, if `json` is not a JSON object.
absl::StatusOr<std::string> RewriteConfigDType(std::string_view json, DType weight_dtype,
                                               const std::string& path);

// Where config.json and the side files come from. The path of a directory converts to it.
struct HfSideFiles {
  HfSideFiles(std::string directory, std::string chat_template = "")
      : directory(std::move(directory)), chat_template(std::move(chat_template)) {}
  HfSideFiles(const char* directory) : HfSideFiles(std::string(directory)) {}
  std::string directory;
  // A Jinja program that takes the place of all chat templates of the directory; "" for none. The
  // one in tokenizer_config.json stays, because chat_template.jinja takes precedence over it.
  std::string chat_template;
  // The digest that the tensors which a wrapper carries must have (CarriedTensors); "" for any.
  std::string carried_digest;
};

// Writes `to`/config.json with the source's content as RewriteConfigDType changes it, and copies
// the side files that exist. Syncs each file and the directory of templates, but not `to`. Returns
// the paths, relative to `to`, of the files written. Returns the errors of reading, of writing and
// of RewriteConfigDType, and OutOfRange if config.json is longer than kConfigBytesMax. After an
// error `to` may hold some of the files. REQUIRES: `to` is a directory.
absl::StatusOr<std::vector<std::string>> CopyHfSideFiles(FileSystem* files,
                                                         const HfSideFiles& source,
                                                         DType weight_dtype, const std::string& to);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_FORMAT_H_
