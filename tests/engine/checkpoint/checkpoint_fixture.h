// A tiny model, tiles with content that depends on a seed, and checkpoints made of them.
#ifndef MEGATRAIN_TESTS_ENGINE_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define MEGATRAIN_TESTS_ENGINE_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"

namespace megatrain {

// Llama with odd sizes, so that tiles have padding.
ModelDescription TinyConfig();
const ModelLayout& TinyLayout();

// A state as an engine would fill it.
CheckpointState MakeState(const ModelLayout& layout, DType weight_dtype, int64_t step);

// The tiles of a model.
class TileSet {
 public:
  TileSet(const ModelLayout& layout, DType weight_dtype);
  // Bits that depend on (seed, tile, element); padding is zero.
  void Fill(uint64_t seed);
  // Nothing that Fill would leave, padding included.
  void Scramble();
  const Tile& tile(int index) const { return tiles_[index]; }
  int size() const { return static_cast<int>(tiles_.size()); }
  friend bool operator==(const TileSet& a, const TileSet& b) { return a.blocks_ == b.blocks_; }

 private:
  std::vector<std::vector<char>> blocks_;
  std::vector<Tile> tiles_;
};

// A HF directory's small files: config.json of TinyConfig, tokenizer.json.
void WriteConfigDirectory(FileSystem* files, const std::string& directory);

// A whole save of tiles filled with seed `step`.
absl::StatusOr<std::string> SaveCheckpoint(const std::string& directory, int64_t step,
                                           DType weight_dtype, const std::string& config_directory,
                                           FileSystem* files, int64_t keep = 2);

// Reads the manifest and one tile.
absl::Status LoadTile(const std::string& checkpoint, const ModelLayout& layout, int index,
                      const Tile& tile, FileSystem* files = PosixFileSystem());

// OK if every tile of `checkpoint` is what SaveCheckpoint wrote for its step.
absl::Status CheckContent(const std::string& checkpoint, DType weight_dtype, FileSystem* files);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_CHECKPOINT_CHECKPOINT_FIXTURE_H_
