// Directories of wrappers: the names of tensors, and what is carried through.
#include "engine/hf/carried_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_export.h"
#include "engine/hf/hf_weights.h"
#include "tests/engine/hf/model_fixture.h"
#include "tests/support/counting_file_system.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;

  friend bool operator==(const Stored&, const Stored&) = default;
};
using Tensors = std::map<std::string, Stored>;

Tensors ReadAll(const std::string& directory) {
  Tensors tensors;
  const auto found = FindHfWeightFiles(PosixFileSystem(), directory);
  EXPECT_TRUE(found.ok()) << found.status();
  for (const std::string& path : found->paths) {
    const auto reader = SafetensorsReader::Open(PosixFileSystem(), path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    for (const SafetensorsTensor& tensor : (*reader)->header().tensors) {
      Stored& stored = tensors[tensor.name];
      stored = {tensor.dtype, tensor.shape, std::string(tensor.bytes(), '\0')};
      EXPECT_TRUE((*reader)->Read(tensor, 0, stored.data.data(), tensor.bytes()).ok());
      const bool in_index = !found->weight_map.empty() && found->weight_map.contains(tensor.name);
      EXPECT_TRUE(found->weight_map.empty() || in_index) << tensor.name;
    }
  }
  return tensors;
}

// A copy of a reference model's directory with other tensors.
std::string Changed(const std::string& name, const std::function<void(Tensors&)>& change) {
  const std::string source = "tests/golden/models/" + name;
  const std::string directory = FreshDirectory("changed");
  std::filesystem::copy_file(source + "/config.json", directory + "/config.json");
  Tensors tensors = ReadAll(source);
  change(tensors);
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [key, stored] : tensors) {
    declarations.push_back({key, stored.dtype, stored.shape});
  }
  auto writer =
      SafetensorsWriter::Create(PosixFileSystem(), directory + "/model.safetensors", declarations);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const auto& [key, stored] : tensors) {
    EXPECT_TRUE((*writer)->Append(stored.data.data(), std::ssize(stored.data)).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  return directory;
}

// The names of the modules, which transformers 5 maps those of files to.
void NameAsModules(Tensors& tensors) {
  Tensors renamed;
  for (auto& [name, stored] : tensors) {
    std::string own = "model." + name;
    if (absl::StartsWith(name, "language_model.model.")) {
      own = "model.language_model." + name.substr(std::string("language_model.model.").size());
    } else if (name == "language_model.lm_head.weight") {
      own = "lm_head.weight";
    }
    renamed[own] = std::move(stored);
  }
  tensors = std::move(renamed);
}

ModelDescription Read(const std::string& directory) {
  const auto model = ReadModelDescription(directory);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelDescription();
}

void Export(const std::string& from, DType dtype, const std::string& to,
            int64_t shard_bytes = kHfShardBytes) {
  const ModelLayout layout = BuildModelLayout(Read(from));
  const auto weights = HfWeights::Open(from, layout);
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<std::unique_ptr<OwnedTile>> tiles;
  for (int i = 0; i < layout.tile_count(); ++i) {
    tiles.push_back(std::make_unique<OwnedTile>(layout.tiles[i], dtype));
    ASSERT_TRUE((*weights)->LoadTile(i, tiles.back()->tile()).ok());
  }
  const absl::Status status = ExportHfDirectory(
      from, layout, dtype, [&](int i) -> absl::StatusOr<Tile> { return tiles[i]->tile(); }, to,
      shard_bytes);
  ASSERT_TRUE(status.ok()) << status;
}

// The error of reading the directory or opening its weights.
std::string Error(const std::string& directory) {
  const auto model = ReadModelDescription(directory);
  if (!model.ok()) return std::string(model.status().message());
  return std::string(HfWeights::Open(directory, BuildModelLayout(*model)).status().message());
}

nlohmann::json Config(const std::string& directory) {
  return nlohmann::json::parse(
      *ReadWholeFile(PosixFileSystem(), directory + "/config.json", 100000));
}

TEST(CarriedTensorsTest, ExportsEveryTensorAsItWasUnderItsName) {
  for (const char* name : {"gemma3_wrapper", "mistral3_wrapper"}) {
    for (const bool as_modules : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, as_modules ? ", names of modules" : ""));
      const std::string source = Changed(
          name, as_modules ? NameAsModules : [](Tensors&) {});
      const Tensors tensors = ReadAll(source);
      EXPECT_EQ(tensors.contains("model.language_model.norm.weight"), as_modules);
      int64_t bytes = 0;
      for (const auto& [key, stored] : tensors) bytes += std::ssize(stored.data);
      // In one file for the text model and one for the others, and in many files.
      for (const int64_t shard_bytes : {kHfShardBytes, int64_t{10000}}) {
        const std::string out = FreshDirectory("parent") + "/out";
        Export(source, DType::kBF16, out, shard_bytes);
        EXPECT_TRUE(ReadAll(out) == tensors);
        EXPECT_EQ(Config(out), Config(source));
        const auto index = nlohmann::json::parse(
            *ReadWholeFile(PosixFileSystem(), out + "/" + kHfIndexFileName, 1 << 20));
        EXPECT_EQ(index["metadata"]["total_size"], bytes);
        // An export is a directory like the one that it was made of, and may be replaced by
        // another.
        Export(out, DType::kBF16, FreshDirectory("again") + "/out");
        Export(source, DType::kBF16, out);
      }
    }
  }
}

TEST(CarriedTensorsTest, TensorsWhoseRowsAreInAnotherOrderComeBackAsTheyWere) {
  const std::string source = Changed("qwen3_5_wrapper", [](Tensors& tensors) {
    tensors["mtp.fc.weight"] = {"BF16", {2, 3}, std::string(12, '\3')};
  });
  // The layers that are carried are still counted.
  nlohmann::json config = Config(source);
  config["text_config"]["mtp_num_hidden_layers"] = 1;
  std::ofstream(source + "/config.json") << config;
  const std::string out = FreshDirectory("parent") + "/out";
  Export(source, DType::kBF16, out);
  EXPECT_TRUE(ReadAll(out) == ReadAll(source));
  EXPECT_EQ(Config(out), Config(source));
}

// As transformers saves the text model that it took out of a wrapper.
TEST(CarriedTensorsTest, ATextModelMayKeepTheNamesThatItHadWithin) {
  const std::string source = Changed("qwen3_5_wrapper", [](Tensors& tensors) {
    std::erase_if(tensors, [](const auto& tensor) {
      return absl::StartsWith(tensor.first, "model.visual.");
    });
  });
  nlohmann::json config = Config(source)["text_config"];
  config["dtype"] = "bfloat16";
  const absl::Status written =
      WriteFileSynced(PosixFileSystem(), source + "/config.json", config.dump());
  ASSERT_TRUE(written.ok()) << written;
  const ModelDescription model = Read(source);
  EXPECT_EQ(model.family, "qwen3_5_text");
  EXPECT_FALSE(model.wrapper.is_there());
  const Tensors tensors = ReadAll(source);
  EXPECT_TRUE(tensors.contains("model.language_model.norm.weight"));
  const std::string out = FreshDirectory("parent") + "/out";
  Export(source, DType::kBF16, out);
  EXPECT_TRUE(ReadAll(out) == tensors);
  EXPECT_EQ(Config(out), Config(source));
}

TEST(CarriedTensorsTest, ModelsWhoseFilesNameModulesAreExportedAsTheyWere) {
  const std::string source = Changed("gemma4_wrapper", [](Tensors&) {});
  const Tensors tensors = ReadAll(source);
  EXPECT_TRUE(tensors.contains("model.language_model.layers.0.layer_scalar"));
  EXPECT_TRUE(tensors.contains("model.embed_vision.embedding_projection.weight"));
  const std::string out = FreshDirectory("parent") + "/out";
  Export(source, DType::kBF16, out);
  EXPECT_TRUE(ReadAll(out) == tensors);
  EXPECT_EQ(Config(out), Config(source));
}

TEST(CarriedTensorsTest, TheOtherTensorsKeepTheirTypes) {
  const std::string source = Changed("gemma3_wrapper", [](Tensors& tensors) {
    tensors["vision_tower.counter"] = {"I64", {2}, std::string(16, '\7')};
    tensors["vision_tower.flag"] = {"BOOL", {3}, std::string(3, '\1')};
    tensors["vision_tower.nothing"] = {"F8_E4M3", {0}, ""};
  });
  const std::string out = FreshDirectory("parent") + "/out";
  Export(source, DType::kF32, out);
  const Tensors before = ReadAll(source), after = ReadAll(out);
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, stored] : before) {
    const bool text = absl::StartsWith(name, "language_model.");
    EXPECT_EQ(after.at(name).dtype, text ? "F32" : stored.dtype) << name;
    EXPECT_TRUE(text || after.at(name) == stored) << name;
  }
  EXPECT_EQ(Config(out)["dtype"], "float32");
}

TEST(CarriedTensorsTest, CountsWhatIsCarried) {
  const ModelDescription model = Read("tests/golden/models/gemma3_wrapper");
  int64_t bytes = 0, tensors = 0;
  for (const auto& [name, stored] : ReadAll("tests/golden/models/gemma3_wrapper")) {
    if (absl::StartsWith(name, "language_model.")) continue;
    ++tensors;
    bytes += std::ssize(stored.data);
  }
  EXPECT_EQ(model.family, "gemma3_text");
  EXPECT_EQ(model.wrapper.family, "gemma3");
  EXPECT_EQ(model.wrapper.carried_tensors, tensors);
  EXPECT_EQ(model.wrapper.carried_bytes, bytes);
}

TEST(CarriedTensorsTest, AHeadThatDiffersIsNotTied) {
  // tie_word_embeddings is true by default in both.
  EXPECT_TRUE(Read("tests/golden/models/gemma3_wrapper").tied_embeddings);
  EXPECT_FALSE(Read("tests/golden/models/mistral3_wrapper").tied_embeddings);
  const auto without = [](Tensors& tensors) { tensors.erase("language_model.lm_head.weight"); };
  EXPECT_TRUE(Read(Changed("mistral3_wrapper", without)).tied_embeddings);
  const std::string equal = Changed("mistral3_wrapper", [](Tensors& tensors) {
    tensors["language_model.lm_head.weight"] = tensors["language_model.model.embed_tokens.weight"];
  });
  EXPECT_TRUE(Read(equal).tied_embeddings);
  EXPECT_EQ(Error(equal), "");
  // An index tells as much where the files themselves are not there.
  const std::string planned = Changed("mistral3_wrapper", without);
  std::filesystem::remove(planned + "/model.safetensors");
  EXPECT_TRUE(Read(planned).tied_embeddings);
  ASSERT_TRUE(
      WriteFileSynced(
          PosixFileSystem(), planned + "/" + kHfIndexFileName,
          MakeHfIndex({{"language_model.lm_head.weight", "model-00001-of-00001.safetensors"}}, 1))
          .ok());
  EXPECT_FALSE(Read(planned).tied_embeddings);
}

// So a run goes on from a checkpoint when the weights that it began with are gone.
TEST(CarriedTensorsTest, NamesMayBeThoseOfAnotherDirectory) {
  const std::string source = Changed("mistral3_wrapper", NameAsModules);
  const ModelDescription whole = Read(source);
  const std::string gone = FreshDirectory("gone");
  std::filesystem::copy_file(source + "/config.json", gone + "/config.json");
  EXPECT_EQ(Read(gone).wrapper.carried_tensors, 0);
  const auto named = ReadModelDescription(gone, PosixFileSystem(), {gone, source});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->wrapper.carried_tensors, whole.wrapper.carried_tensors);
  EXPECT_EQ(named->wrapper.carried_bytes, whole.wrapper.carried_bytes);
  EXPECT_EQ(named->wrapper.model_prefix, "model.language_model.");
  EXPECT_FALSE(named->tied_embeddings);
}

TEST(CarriedTensorsTest, RefusesOtherNames) {
  const std::string norm = "language_model.model.norm.weight";
  EXPECT_THAT(Error(Changed("gemma3_wrapper", [&](Tensors& tensors) { tensors.erase(norm); })),
              HasSubstr("tensor \"language_model.model.norm.weight\" is missing"));
  EXPECT_THAT(
      Error(Changed("gemma3_wrapper",
                    [&](Tensors& tensors) {
                      tensors["model.language_model.norm.weight"] = tensors[norm];
                      tensors.erase(norm);
                    })),
      AllOf(HasSubstr("\"language_model.model.embed_tokens.weight\""),
            HasSubstr("\"model.language_model.norm.weight\""), HasSubstr("named in two ways")));
  for (const char* name : {"audio_tower.weight", "model.vision_tower.weight", "model.norm.weight",
                           "lm_head.weight", "vision_towers.weight"}) {
    EXPECT_THAT(
        Error(Changed("gemma3_wrapper", [&](Tensors& tensors) { tensors[name] = tensors[norm]; })),
        AllOf(HasSubstr(absl::StrCat("tensor \"", name, "\" does not belong")),
              HasSubstr("gemma3_text")));
  }
  EXPECT_THAT(Error(Changed("gemma3_wrapper",
                            [&](Tensors& tensors) {
                              Tensors bare;
                              for (auto& [name, stored] : tensors) {
                                bare[name.substr(name.find('.') + 1)] = stored;
                              }
                              tensors = bare;
                            })),
              HasSubstr("tensor \"language_model.model.embed_tokens.weight\" is missing"));
}

TEST(CarriedTensorsTest, AnExportNeedsTheDirectoryAsItWas) {
  const std::string source = Changed("gemma3_wrapper", [](Tensors&) {});
  const WrapperDescription wrapper = Read(source).wrapper;
  ASSERT_TRUE(CarriedTensors::Open(PosixFileSystem(), source, wrapper).ok());
  const std::string other = Changed("gemma3_wrapper", [](Tensors& tensors) {
    tensors.erase("vision_tower.post_layernorm.bias");
  });
  const absl::Status changed = CarriedTensors::Open(PosixFileSystem(), other, wrapper).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(changed.message()), AllOf(HasSubstr(other), HasSubstr("restore")));
  // As many tensors of another size, and as many bytes of more tensors.
  const std::string resized = Changed("gemma3_wrapper", [](Tensors& tensors) {
    tensors["vision_tower.post_layernorm.bias"] = {"U8", {1}, "x"};
  });
  const std::string more = Changed("gemma3_wrapper", [](Tensors& tensors) {
    tensors["vision_tower.nothing"] = {"F32", {0}, ""};
  });
  for (const std::string& directory : {resized, more}) {
    EXPECT_EQ(CarriedTensors::Open(PosixFileSystem(), directory, wrapper).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << directory;
  }
  std::filesystem::remove(other + "/model.safetensors");
  EXPECT_EQ(CarriedTensors::Open(PosixFileSystem(), other, wrapper).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(CarriedTensorsTest, TheDigestIsThatOfNamesTypesAndShapes) {
  const std::string source = Changed("gemma3_wrapper", [](Tensors&) {});
  const WrapperDescription wrapper = Read(source).wrapper;
  const auto open = [&](const std::string& directory, const std::string& digest = "") {
    return CarriedTensors::Open(PosixFileSystem(), directory, wrapper, digest);
  };
  const auto carried = open(source);
  ASSERT_TRUE(carried.ok()) << carried.status();
  EXPECT_EQ(carried->digest().size(), 32u);
  const std::string sharded = FreshDirectory("parent") + "/out";
  Export(source, DType::kBF16, sharded, 10000);
  EXPECT_EQ(open(sharded, carried->digest()).status(), absl::OkStatus());
  const std::string bias = "vision_tower.post_layernorm.bias";
  const std::string renamed = Changed("gemma3_wrapper", [&](Tensors& tensors) {
    tensors["vision_tower.other"] = tensors[bias];
    tensors.erase(bias);
  });
  const std::string reshaped = Changed("gemma3_wrapper", [&](Tensors& tensors) {
    tensors[bias].shape.insert(tensors[bias].shape.begin(), 1);
  });
  for (const std::string& directory : {renamed, reshaped}) {
    EXPECT_TRUE(open(directory).ok()) << "as many and as long";
    const absl::Status status = open(directory, carried->digest()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(directory), HasSubstr("restore")));
  }
}

// Somebody may have put another tower into the directory since the run began.
TEST(CarriedTensorsTest, AnExportRefusesOtherTensorsThanTheRunBeganWith) {
  const std::string source = Changed("gemma3_wrapper", [](Tensors&) {});
  const ModelLayout layout = BuildModelLayout(Read(source));
  HfSideFiles side_files(source);
  side_files.carried_digest = "another";
  const std::string out = FreshDirectory("parent") + "/out";
  const absl::Status status = ExportHfDirectory(
      side_files, layout, DType::kBF16,
      [](int) -> absl::StatusOr<Tile> { return absl::InternalError("a tile is asked for"); }, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(CarriedTensorsTest, OneFileIsOpenAtATime) {
  const std::string source = FreshDirectory("parent") + "/out";
  Export("tests/golden/models/gemma3_wrapper", DType::kBF16, source, 10000);
  // The last shard has all that is carried: another directory has it beside the text model.
  const std::string shard = source + "/model-extra.safetensors";
  CountingFileSystem files;
  const auto carried = CarriedTensors::Open(&files, source, Read(source).wrapper);
  ASSERT_TRUE(carried.ok()) << carried.status();
  ASSERT_TRUE(carried->Write(&files, shard).ok());
  EXPECT_EQ(files.open_max(), 1);
}

TEST(CarriedTensorsTest, AFileThatChangesMeanwhileIsNotCopied) {
  const std::string bias = "vision_tower.post_layernorm.bias";
  for (const bool is_there : {false, true}) {
    const std::string source = Changed("gemma3_wrapper", [](Tensors&) {});
    const auto carried = CarriedTensors::Open(PosixFileSystem(), source, Read(source).wrapper);
    ASSERT_TRUE(carried.ok()) << carried.status();
    const std::string other = Changed("gemma3_wrapper", [&](Tensors& tensors) {
      if (is_there) {
        tensors[bias].shape.insert(tensors[bias].shape.begin(), 1);
      } else {
        tensors.erase(bias);
      }
    });
    std::filesystem::rename(other + "/model.safetensors", source + "/model.safetensors");
    const auto written = carried->Write(PosixFileSystem(), source + "/copy.safetensors");
    EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(written.status().message()), HasSubstr(bias));
  }
}

TEST(CarriedTensorsTest, AFileThatIsWrittenInAnotherOrderMeanwhileIsCopiedByNames) {
  const std::string source = Changed("gemma3_wrapper", [](Tensors&) {});
  const auto carried = CarriedTensors::Open(PosixFileSystem(), source, Read(source).wrapper);
  ASSERT_TRUE(carried.ok()) << carried.status();
  const Tensors tensors = ReadAll(source);
  std::vector<SafetensorsDeclaration> backwards;
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    backwards.push_back({tensor->first, tensor->second.dtype, tensor->second.shape});
  }
  const auto other =
      SafetensorsWriter::Create(PosixFileSystem(), source + "/other.safetensors", backwards);
  ASSERT_TRUE(other.ok()) << other.status();
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    const std::string& data = tensor->second.data;
    ASSERT_TRUE((*other)->Append(data.data(), std::ssize(data)).ok());
  }
  ASSERT_TRUE((*other)->Finish().ok());
  std::filesystem::rename(source + "/other.safetensors", source + "/model.safetensors");
  const std::string copies = FreshDirectory("copies");
  const auto written = carried->Write(PosixFileSystem(), copies + "/model.safetensors");
  ASSERT_TRUE(written.ok()) << written.status();
  const Tensors copied = ReadAll(copies);
  EXPECT_EQ(copied.size(), carried->names().size());
  for (const auto& [name, stored] : copied) EXPECT_TRUE(stored == tensors.at(name)) << name;
}

TEST(CarriedTensorsTest, LargeTensorsAreCopiedInPieces) {
  const std::string source = Changed("gemma3_wrapper", [](Tensors& tensors) {
    std::string data(size_t{5} << 19, '\0');  // 2.5 MiB
    uint32_t state = 1;
    for (char& byte : data) {
      byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    }
    tensors["vision_tower.large.weight"] = {"BF16", {5 << 18}, data};
  });
  const std::string out = FreshDirectory("parent") + "/out";
  Export(source, DType::kBF16, out);
  EXPECT_TRUE(ReadAll(out) == ReadAll(source));
}

}  // namespace
}  // namespace megatrain
