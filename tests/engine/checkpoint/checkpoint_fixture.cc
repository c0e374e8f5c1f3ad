#include "tests/engine/checkpoint/checkpoint_fixture.h"

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr char kConfigJson[] = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": 11,
  "hidden_size": 12,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "num_key_value_heads": 1,
  "head_dim": 6,
  "intermediate_size": 20,
  "max_position_embeddings": 64,
  "rms_norm_eps": 1e-06,
  "rope_theta": 10000.0,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float32"
}
)";

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

ModelDescription TinyConfig() {
  return UniformModel({.vocabulary = 11,
                       .hidden = 12,
                       .layers = 2,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 6,
                       .intermediate = 20,
                       .max_positions = 64});
}

const ModelLayout& TinyLayout() {
  static const ModelLayout& layout = *new ModelLayout(BuildModelLayout(TinyConfig()));
  return layout;
}

CheckpointState MakeState(const ModelLayout& layout, DType weight_dtype, int64_t step) {
  CheckpointState state;
  state.step = step;
  state.weight_dtype = weight_dtype;
  state.data_position = step * 8;
  state.input_tokens = step * 512;
  state.seed = 42;
  state.data_fingerprint = "0123456789abcdef0123456789abcdef";
  state.model_fingerprint = ModelFingerprint(layout);
  state.spec = {{"optimizer.learning_rate", "0.0003"}, {"training.global_batch", "8"}};
  state.threads = 2;
  state.arithmetic = "cpu, some library";
  state.steps_total = 200;
  return state;
}

TileSet::TileSet(const ModelLayout& layout, DType weight_dtype) {
  for (const TileLayout& tile_layout : layout.tiles) {
    blocks_.emplace_back(
        TileBytes(tile_layout.elements, weight_dtype, tile_layout.stateless_elements));
    tiles_.push_back(MakeTile(&tile_layout, weight_dtype, blocks_.back().data()));
  }
}

void TileSet::Fill(uint64_t seed) {
  for (int i = 0; i < size(); ++i) {
    std::fill(blocks_[i].begin(), blocks_[i].end(), '\0');
    const Tile& tile = tiles_[i];
    for (const TensorSpec& tensor : tile.layout->tensors) {
      for (int64_t e = tensor.offset; e < tensor.offset + tensor.elements; ++e) {
        const uint64_t bits = Mix(Mix(seed * 1000 + i) + e);
        const uint64_t more = Mix(bits);
        const int64_t width = DTypeBytes(tile.weight_dtype);
        if (tensor.is_buffer) {
          std::memcpy(
              static_cast<char*>(tile.weights) + tensor.offset * width + (e - tensor.offset) * 4,
              &bits, 4);
        } else {
          std::memcpy(static_cast<char*>(tile.weights) + e * width, &bits, width);
        }
        if (tensor.frozen) continue;
        if (tile.remainder != nullptr) tile.remainder[e] = static_cast<int16_t>(bits >> 32);
        std::memcpy(tile.exp_avg + e, &more, 4);
        std::memcpy(tile.exp_avg_sq + e, reinterpret_cast<const char*>(&more) + 4, 4);
      }
    }
  }
}

void TileSet::Scramble() {
  for (std::vector<char>& block : blocks_) std::fill(block.begin(), block.end(), '\x5a');
}

void WriteConfigDirectory(FileSystem* files, const std::string& directory) {
  files->CreateDirectories(directory).IgnoreError();
  WriteFileSynced(files, JoinPath(directory, "config.json"), kConfigJson).IgnoreError();
  WriteFileSynced(files, JoinPath(directory, "tokenizer.json"), "{\"version\": \"1.0\"}\n")
      .IgnoreError();
}

absl::StatusOr<std::string> SaveCheckpoint(const std::string& directory, int64_t step,
                                           DType weight_dtype, const std::string& config_directory,
                                           FileSystem* files, int64_t keep) {
  TileSet tiles(TinyLayout(), weight_dtype);
  tiles.Fill(step);
  MT_ASSIGN_OR_RETURN(
      std::unique_ptr<CheckpointWriter> writer,
      CheckpointWriter::Begin(directory, TinyLayout(), MakeState(TinyLayout(), weight_dtype, step),
                              config_directory, files));
  for (int i = 0; i < tiles.size(); ++i) MT_RETURN_IF_ERROR(writer->WriteTile(i, {tiles.tile(i)}));
  Retention retention;
  retention.keep = keep;
  return writer->Finish(retention);
}

absl::Status LoadTile(const std::string& checkpoint, const ModelLayout& layout, int index,
                      const Tile& tile, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, files));
  return LoadCheckpointTile(checkpoint, manifest, layout, index, tile, files);
}

absl::Status CheckContent(const std::string& checkpoint, DType weight_dtype, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpointState(checkpoint, files));
  TileSet expected(TinyLayout(), weight_dtype), loaded(TinyLayout(), weight_dtype);
  expected.Fill(state.step);
  loaded.Scramble();
  for (int i = 0; i < loaded.size(); ++i) {
    MT_RETURN_IF_ERROR(LoadTile(checkpoint, TinyLayout(), i, loaded.tile(i), files));
  }
  if (loaded == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(checkpoint, " loads other tiles than were saved"));
}

}  // namespace megatrain
