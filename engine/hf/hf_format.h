// The files of a Hugging Face model directory, as those who read and those who write it share them.
#ifndef MEGATRAIN_ENGINE_HF_HF_FORMAT_H_
#define MEGATRAIN_ENGINE_HF_HF_FORMAT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"

namespace megatrain {

// The weights: one file, or shards with an index that says which tensor is in which.
inline constexpr char kHfWeightsFileName[] = "model.safetensors";
inline constexpr char kHfIndexFileName[] = "model.safetensors.index.json";
// 90 bytes a tensor: ten million tensors would fit in less.
inline constexpr int64_t kHfIndexBytesMax = int64_t{1} << 30;

// Files beside config.json and the weights that a model needs to be used: copied through, unread.
inline constexpr const char* kHfSideFileNames[] = {
    "added_tokens.json", "chat_template.jinja",     "generation_config.json",
    "merges.txt",        "special_tokens_map.json", "tokenizer.json",
    "tokenizer.model",   "tokenizer_config.json",   "vocab.json",
};

// "model-00002-of-00017.safetensors". REQUIRES: 1 <= shard <= shards.
std::string HfShardName(int64_t shard, int64_t shards);

// Whether a file of this name belongs in an exported directory.
bool IsHfFileName(const std::string& name);

// Tensor name -> file name.
using HfWeightMap = std::map<std::string, std::string>;

// The index's text. total_bytes: of all tensors, without headers.
std::string MakeHfIndex(const HfWeightMap& weight_map, int64_t total_bytes);
// InvalidArgument names the key; file names with a directory in them are refused.
absl::StatusOr<HfWeightMap> ParseHfIndex(std::string_view json, const std::string& path);

// The files that hold a directory's weights, by path, without opening them; the weight map is empty
// if there is one file without an index. NotFound says which files were looked for.
struct HfWeightFiles {
  std::vector<std::string> paths;
  HfWeightMap weight_map;
};
absl::StatusOr<HfWeightFiles> FindHfWeightFiles(FileSystem* files, const std::string& directory);

// Writes `to`/config.json with the source's content and `weight_dtype` as its dtype, and copies the
// side files that are there; each is synced, the directory is not. Returns the names written.
absl::StatusOr<std::vector<std::string>> CopyHfSideFiles(FileSystem* files,
                                                         const std::string& source_directory,
                                                         DType weight_dtype, const std::string& to);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_FORMAT_H_
