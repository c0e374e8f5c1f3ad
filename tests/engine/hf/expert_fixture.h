// A small model with experts: its files, its tiles, and what is in them.
#ifndef MEGATRAIN_TESTS_ENGINE_HF_EXPERT_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_HF_EXPERT_FIXTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/hf/hf_format.h"
#include "engine/hf/hf_writer.h"
#include "engine/hf/safetensors.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {

inline constexpr char kExperts[] = "model.layers.0.mlp.experts.";

// Two layers, hidden 64: the first with `count` experts of 32 that lie on disk as `tensors` says, a
// shared one, and a router with a buffer; the second dense.
ModelDescription ExpertModel(ExpertTensors tensors, int64_t experts_per_tile, int64_t count = 5);

// Returns the tensors as files declare them, each once.
std::vector<SafetensorsDeclaration> Declared(const ModelLayout& layout, const std::string& dtype,
                                             const std::string& buffer_dtype = "F32");

using Tiles = std::vector<std::unique_ptr<OwnedTile>>;
Tiles Load(const std::string& directory, const ModelLayout& layout, DType dtype);

// Checks that the parts of tiles hold what the whole ones do.
void CheckParts(const std::string& directory, const ModelLayout& layout, DType dtype);

// Exports the tiles, and checks that the files' tensors are aligned. Returns the directory.
std::string Export(const std::string& source, const ModelLayout& layout, const Tiles& tiles,
                   DType dtype, int64_t shard_bytes = kHfShardBytes);

struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  friend bool operator==(const FileTensor&, const FileTensor&) = default;
};
// Returns all tensors of a directory or a file by name.
std::map<std::string, FileTensor> ReadTensors(const std::string& path);

// Returns the value of an element of a tensor's part in a tile.
float Value(const Tile& tile, const TensorSpec& tensor, int64_t i);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_HF_EXPERT_FIXTURE_H_
