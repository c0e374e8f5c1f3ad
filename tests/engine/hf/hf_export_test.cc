// ExportHfDirectory.
#include "engine/hf/hf_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_weights.h"
#include "engine/memory/split_master.h"
#include "tests/engine/hf/model_fixture.h"
#include "tests/fault/fault_injection_file_system.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Forwards to the system's files until `bytes` have been written, then the disk is full.
class SmallDisk : public WatchedFileSystem {
 public:
  explicit SmallDisk(int64_t bytes)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }), left_(bytes) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    auto file = WatchedFileSystem::NewWritableFile(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(this, path, *std::move(file));
  }
  // Room is reserved, as on most file systems.
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    if (bytes > left_) return FileError("write", path, ENOSPC, bytes);
    left_ -= bytes;
    return WatchedFileSystem::NewBlockFile(path, bytes);
  }
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string&) override { return left_; }

 private:
  class File : public WritableFile {
   public:
    File(SmallDisk* disk, std::string path, std::unique_ptr<WritableFile> file)
        : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}
    absl::Status Append(const void* data, int64_t bytes) override {
      if (bytes > disk_->left_) return FileError("write", path_, ENOSPC, bytes);
      disk_->left_ -= bytes;
      return file_->Append(data, bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    SmallDisk* const disk_;
    const std::string path_;
    const std::unique_ptr<WritableFile> file_;
  };

  int64_t left_;
};

// Fails the renaming that gives an export its name.
class NoLastRenaming : public WatchedFileSystem {
 public:
  NoLastRenaming() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (from == to + ".export-tmp") return FileError("rename", from, EIO);
    return WatchedFileSystem::Rename(from, to);
  }
};

struct Model {
  std::string directory;
  ModelLayout layout;
  std::vector<std::unique_ptr<OwnedTile>> tiles;
};

Model LoadModel(const std::string& directory, DType dtype) {
  Model model;
  model.directory = directory;
  const auto config = ReadModelDescription(directory);
  EXPECT_TRUE(config.ok()) << config.status();
  model.layout = BuildModelLayout(*config);
  const auto weights = HfWeights::Open(directory, model.layout);
  EXPECT_TRUE(weights.ok()) << weights.status();
  for (int i = 0; i < model.layout.tile_count(); ++i) {
    model.tiles.push_back(std::make_unique<OwnedTile>(model.layout.tiles[i], dtype));
    EXPECT_TRUE((*weights)->LoadTile(i, model.tiles.back()->tile()).ok());
  }
  return model;
}

absl::Status Export(const Model& model, DType dtype, const std::string& to,
                    int64_t shard_bytes = int64_t{5000000000},
                    FileSystem* files = PosixFileSystem()) {
  int next = 0;
  return ExportHfDirectory(
      model.directory, model.layout, dtype,
      [&](int i) -> absl::StatusOr<Tile> {
        EXPECT_EQ(i, next++);
        return model.tiles[i]->tile();
      },
      to, shard_bytes, files);
}

Model SmallModel(DType dtype, const std::string& file_dtype = "F32") {
  const std::string directory = FreshDirectory("source");
  WriteSmallModel(directory, "llama", false, file_dtype);
  EXPECT_TRUE(WriteFileSynced(PosixFileSystem(), directory + "/tokenizer.json", "{}").ok());
  EXPECT_TRUE(WriteFileSynced(PosixFileSystem(), directory + "/README.md", "of the source").ok());
  return LoadModel(directory, dtype);
}

std::string Target() { return FreshDirectory("parent") + "/out"; }

std::vector<std::string> List(const std::string& directory) {
  return *PosixFileSystem()->ListDirectory(directory);
}

TEST(HfExportTest, WhatIsExportedLoadsAsTheSameModel) {
  for (const char* name : {"llama", "llama3_sharded", "qwen2", "qwen3"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(absl::StrCat(name, " ", DTypeName(dtype)));
      const Model model = LoadModel(absl::StrCat("tests/golden/hf/", name), dtype);
      const std::string out = FreshDirectory(absl::StrCat(name, DTypeName(dtype))) + "/out";
      const absl::Status status = Export(model, dtype, out);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_THAT(List(out),
                  ElementsAre("config.json", "generation_config.json", "model.safetensors"));
      const Model back = LoadModel(out, dtype);
      for (int i = 0; i < model.layout.tile_count(); ++i) {
        const Tile& a = model.tiles[i]->tile();
        const Tile& b = back.tiles[i]->tile();
        EXPECT_EQ(std::string(static_cast<const char*>(a.weights), a.weight_bytes()),
                  std::string(static_cast<const char*>(b.weights), b.weight_bytes()));
      }
      // Only the dtype differs in config.json.
      auto before = nlohmann::json::parse(
          *ReadWholeFile(PosixFileSystem(), model.directory + "/config.json", 10000));
      const auto after =
          nlohmann::json::parse(*ReadWholeFile(PosixFileSystem(), out + "/config.json", 10000));
      before["dtype"] = dtype == DType::kBF16 ? "bfloat16" : "float32";
      EXPECT_EQ(before, after);
    }
  }
}

TEST(HfExportTest, CutsIntoShardsWithAnIndex) {
  const Model model = SmallModel(DType::kF32);
  const std::string out = Target();
  constexpr int64_t kShardBytes = 2500;
  ASSERT_TRUE(Export(model, DType::kF32, out, kShardBytes).ok());
  const auto index_text = ReadWholeFile(PosixFileSystem(), out + "/" + kHfIndexFileName, 100000);
  ASSERT_TRUE(index_text.ok()) << index_text.status();
  const auto index = nlohmann::json::parse(*index_text);
  EXPECT_EQ(index["metadata"]["total_size"], 4 * model.layout.parameters);
  const auto map = ParseHfIndex(*index_text, "x");
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->size(), 21u);
  const auto found = FindHfWeightFiles(PosixFileSystem(), out);
  ASSERT_TRUE(found.ok());
  EXPECT_GE(found->paths.size(), 3u);
  for (const std::string& path : found->paths) {
    const auto file = PosixFileSystem()->OpenForReading(path);
    ASSERT_TRUE(file.ok());
    EXPECT_LE((*file)->size(), kShardBytes);
  }
  EXPECT_THAT(found->paths.front(), HasSubstr(absl::StrCat("-of-0000", found->paths.size())));
  const Model back = LoadModel(out, DType::kF32);
  EXPECT_EQ(static_cast<const float*>(back.tiles[1]->tile().weights)[0],
            TestValue("model.layers.0.input_layernorm.weight", 0));

  // A tensor longer than a shard has a file of its own.
  const std::string tiny = FreshDirectory("tiny") + "/out";
  ASSERT_TRUE(Export(model, DType::kF32, tiny, 1).ok());
  EXPECT_EQ(FindHfWeightFiles(PosixFileSystem(), tiny)->paths.size(), 21u);
  LoadModel(tiny, DType::kF32);
}

TEST(HfExportTest, ConvertsBetweenTheTypesOfTileAndFile) {
  const Model split = SmallModel(DType::kBF16);
  const std::string out = Target();
  ASSERT_TRUE(Export(split, DType::kF32, out).ok());
  const Model back = LoadModel(out, DType::kF32);
  EXPECT_EQ(static_cast<const float*>(back.tiles[0]->tile().weights)[5],
            TestValue("model.embed_tokens.weight", 5));
  ASSERT_TRUE(Export(back, DType::kBF16, FreshDirectory("other") + "/out").ok());
}

TEST(HfExportTest, CopiesTokenizerFilesAndNothingElse) {
  const Model model = SmallModel(DType::kBF16);
  const std::string out = Target();
  ASSERT_TRUE(Export(model, DType::kBF16, out + "/").ok());
  EXPECT_THAT(List(out), ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_THAT(List(ParentDirectory(out)), ElementsAre("out"));
}

TEST(HfExportTest, ReplacesAnEarlierExportButNothingForeign) {
  FileSystem* const files = PosixFileSystem();
  const Model model = SmallModel(DType::kF32);
  const std::string out = Target();
  ASSERT_TRUE(Export(model, DType::kF32, out, 2500).ok());
  // Again, in one file: the old shards and their index are gone.
  ASSERT_TRUE(Export(model, DType::kF32, out).ok());
  EXPECT_THAT(List(out), ElementsAre("config.json", "model.safetensors", "tokenizer.json"));

  ASSERT_TRUE(WriteFileSynced(files, out + "/thesis.tex", "x").ok());
  absl::Status status = Export(model, DType::kF32, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("thesis.tex"));
  EXPECT_TRUE(files->FileExists(out + "/thesis.tex"));
  ASSERT_TRUE(files->RemoveFile(out + "/thesis.tex").ok());

  // Another model's export.
  const std::string other = FreshDirectory("other");
  WriteSmallModel(other, "qwen2", false, "F32");
  status = Export(model, DType::kF32, other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another model"));
  // Files of a model without its configuration.
  const std::string alone = FreshDirectory("alone");
  ASSERT_TRUE(WriteFileSynced(files, alone + "/tokenizer.json", "{}").ok());
  status = Export(model, DType::kF32, alone);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no configuration that can be read"));
  // The source itself.
  ASSERT_TRUE(files->RemoveFile(model.directory + "/README.md").ok());
  EXPECT_EQ(Export(model, DType::kF32, model.directory).code(),
            absl::StatusCode::kFailedPrecondition);
  // A file.
  EXPECT_FALSE(Export(model, DType::kF32, out + "/config.json").ok());
  // An empty directory is fine.
  EXPECT_TRUE(Export(model, DType::kF32, FreshDirectory("empty")).ok());
}

TEST(HfExportTest, ReplacesADirectoryOfChatTemplatesButNothingElseInIt) {
  FileSystem* const files = PosixFileSystem();
  const Model model = SmallModel(DType::kF32);
  const std::string folder = model.directory + "/additional_chat_templates";
  ASSERT_TRUE(files->CreateDirectories(folder).ok());
  ASSERT_TRUE(WriteFileSynced(files, folder + "/rag.jinja", "rag").ok());
  const std::string out = Target();
  for (int again = 0; again < 2; ++again) {
    const absl::Status status = Export(model, DType::kF32, out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(List(out + "/additional_chat_templates"), ElementsAre("rag.jinja"));
  }
  ASSERT_TRUE(WriteFileSynced(files, out + "/additional_chat_templates/thesis.tex", "x").ok());
  const absl::Status status = Export(model, DType::kF32, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("additional_chat_templates/thesis.tex"));
}

TEST(HfExportTest, RemovesItsOwnLeftoversOnly) {
  FileSystem* const files = PosixFileSystem();
  const Model model = SmallModel(DType::kF32);
  const std::string out = Target();
  ASSERT_TRUE(files->CreateDirectories(out + ".export-tmp").ok());
  ASSERT_TRUE(WriteFileSynced(files, out + ".export-tmp/model.safetensors", "half").ok());
  ASSERT_TRUE(Export(model, DType::kF32, out).ok());
  // A crash between the two renamings leaves the old one and nothing at `out`.
  ASSERT_TRUE(files->Rename(out, out + ".export-previous").ok());
  ASSERT_TRUE(Export(model, DType::kF32, out).ok());
  EXPECT_THAT(List(ParentDirectory(out)), ElementsAre("out"));
  ASSERT_TRUE(files->CreateDirectories(out + ".export-previous/mine").ok());
  EXPECT_EQ(Export(model, DType::kF32, out).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(files->FileExists(out + ".export-previous/mine"));
  ASSERT_TRUE(files->RemoveTree(out + ".export-previous").ok());
  // The same beside it, as a file and as a directory.
  const std::string temporary = out + ".export-tmp";
  ASSERT_TRUE(WriteFileSynced(files, temporary, "x").ok());
  absl::Status status = Export(model, DType::kF32, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is no directory"));
  ASSERT_TRUE(files->RemoveFile(temporary).ok());
  ASSERT_TRUE(files->CreateDirectories(temporary).ok());
  ASSERT_TRUE(WriteFileSynced(files, temporary + "/thesis.tex", "x").ok());
  status = Export(model, DType::kF32, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("thesis.tex"));
  EXPECT_TRUE(files->FileExists(temporary + "/thesis.tex"));
}

TEST(HfExportTest, FollowsALinkToTheOutputDirectory) {
  const Model model = SmallModel(DType::kF32);
  const std::string real = FreshDirectory("real"), link = Target();
  std::filesystem::create_directory_symlink(real, link);
  ASSERT_TRUE(Export(model, DType::kF32, link).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(List(real), ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
}

TEST(HfExportTest, AFullDiskLeavesTheEarlierExport) {
  const Model model = SmallModel(DType::kF32);
  const std::string out = Target();
  ASSERT_TRUE(Export(model, DType::kF32, out).ok());
  const std::string before = *ReadWholeFile(PosixFileSystem(), out + "/model.safetensors", 1 << 20);
  for (const int64_t bytes : {0, 100, 1000, 5000}) {
    SmallDisk disk(bytes);
    const absl::Status status = Export(model, DType::kF32, out, 2500, &disk);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << bytes;
    EXPECT_THAT(std::string(status.message()), HasSubstr("disk full writing"));
    EXPECT_THAT(List(ParentDirectory(out)), ElementsAre("out"));
    EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), out + "/model.safetensors", 1 << 20), before);
  }
  SmallDisk enough(1 << 20);
  EXPECT_TRUE(Export(model, DType::kF32, out, 2500, &enough).ok());
}

TEST(HfExportTest, AnExportThatCannotTakeItsNameLeavesTheEarlierOne) {
  const Model model = SmallModel(DType::kF32);
  const std::string out = Target();
  NoLastRenaming files;
  EXPECT_EQ(Export(model, DType::kF32, out, 2500, &files).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(List(ParentDirectory(out)), ElementsAre()) << "there was none";
  ASSERT_TRUE(Export(model, DType::kF32, out).ok());
  EXPECT_EQ(Export(model, DType::kF32, out, 2500, &files).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(List(ParentDirectory(out)), ElementsAre("out"));
  EXPECT_THAT(List(out), ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
}

TEST(HfExportTest, AFailingTileFailsTheExport) {
  const Model model = SmallModel(DType::kF32);
  const std::string out = Target();
  const absl::Status status = ExportHfDirectory(
      model.directory, model.layout, DType::kF32,
      [&](int i) -> absl::StatusOr<Tile> {
        if (i == 2) return absl::DataLossError("tile 2 is gone");
        return model.tiles[i]->tile();
      },
      out);
  EXPECT_EQ(status, absl::DataLossError("tile 2 is gone"));
  EXPECT_THAT(List(ParentDirectory(out)), ElementsAre());
}

TEST(HfExportTest, ConvertsALargeTensorInPieces) {
  const Model source = SmallModel(DType::kF32);
  ModelDescription config = SmallConfig("llama", true);
  config.vocabulary = 300'000;  // 2,400,000 elements: more than are converted at once
  const ModelLayout layout = BuildModelLayout(config);
  std::vector<std::unique_ptr<OwnedTile>> tiles;
  for (const TileLayout& tile_layout : layout.tiles) {
    tiles.push_back(std::make_unique<OwnedTile>(tile_layout, DType::kBF16));
    const Tile& tile = tiles.back()->tile();
    for (int64_t i = 0; i < tile_layout.elements; ++i) {
      const SplitMaster split = EncodeMaster(static_cast<float>(i));
      static_cast<bf16_t*>(tile.weights)[i] = split.weight;
      tile.remainder[i] = split.remainder;
    }
  }
  const auto get = [&](int i) -> absl::StatusOr<Tile> { return tiles[i]->tile(); };
  const std::string out = Target();
  ASSERT_TRUE(ExportHfDirectory(source.directory, layout, DType::kF32, get, out).ok());
  const auto reader = SafetensorsReader::Open(PosixFileSystem(), out + "/model.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.status();
  const TensorSpec& embedding = layout.tiles[0].tensors[0];
  std::vector<float> values(static_cast<size_t>(embedding.elements));
  ASSERT_TRUE((*reader)
                  ->Read(*(*reader)->Find(embedding.name), 0, values.data(), 4 * embedding.elements)
                  .ok());
  for (int64_t i = 0; i < embedding.elements; ++i) {
    ASSERT_EQ(values[i], static_cast<float>(embedding.offset + i)) << i;
  }
}

TEST(HfExportTest, WhatWasExportedOutlivesAPowerCut) {
  const Model model = SmallModel(DType::kF32);
  FaultInjectionFileSystem disk;
  disk.WriteFile("/source/config.json",
                 *ReadWholeFile(PosixFileSystem(), model.directory + "/config.json", 1 << 20));
  disk.WriteFile("/source/tokenizer.json", "{}");
  disk.WriteFile("/source/additional_chat_templates/rag.jinja", "rag");
  disk.WriteFile("/models/.keep", "");
  disk.SyncAll();
  const auto get = [&](int i) -> absl::StatusOr<Tile> { return model.tiles[i]->tile(); };
  const absl::Status status =
      ExportHfDirectory("/source", model.layout, DType::kF32, get, "/models/out", 2500, &disk);
  ASSERT_TRUE(status.ok()) << status;
  disk.Restart(FaultInjectionFileSystem::Loss::kDataAndNames);
  for (const auto& [name, content] : {std::pair("tokenizer.json", "{}"),
                                      std::pair("additional_chat_templates/rag.jinja", "rag")}) {
    const std::string* const found = disk.MutableContent(absl::StrCat("/models/out/", name));
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(*found, content);
  }
  const auto weights = HfWeights::Open("/models/out", model.layout, &disk);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (int i = 0; i < model.layout.tile_count(); ++i) {
    OwnedTile loaded(model.layout.tiles[i], DType::kF32);
    ASSERT_TRUE((*weights)->LoadTile(i, loaded.tile()).ok());
    const Tile &a = loaded.tile(), &b = model.tiles[i]->tile();
    EXPECT_EQ(std::string(static_cast<const char*>(a.weights), a.weight_bytes()),
              std::string(static_cast<const char*>(b.weights), b.weight_bytes()));
  }
}

}  // namespace
}  // namespace megatrain
