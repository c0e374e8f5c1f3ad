// The names in a Hugging Face directory, and the files beside the weights.
#include "engine/hf/hf_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "tests/engine/hf/model_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

FileSystem* const kFiles = PosixFileSystem();

void Write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  ASSERT_TRUE(WriteFileSynced(kFiles, path, content).ok());
}

// A directory with templates of every kind, and files that no model needs.
std::string Source() {
  const std::string source = FreshDirectory("source");
  Write(source + "/config.json", R"({"model_type": "x"})");
  for (const char* const name :
       {"chat_template.jinja", "chat_template.json", "tokenizer_config.json", "README.md",
        "additional_chat_templates/rag.jinja", "additional_chat_templates/README.md",
        "additional_chat_templates/folder.jinja/inner"}) {
    Write(source + "/" + name, absl::StrCat("source's ", name));
  }
  return source;
}

TEST(HfFormatTest, SideFilesAreCopiedAndNothingElse) {
  const std::string source = Source(), to = FreshDirectory("to");
  const auto names = CopyHfSideFiles(kFiles, source, DType::kBF16, to);
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names,
              UnorderedElementsAre("config.json", "chat_template.jinja", "chat_template.json",
                                   "tokenizer_config.json", "additional_chat_templates/rag.jinja"));
  EXPECT_THAT(*ListHfDirectory(kFiles, to), ::testing::UnorderedElementsAreArray(*names));
  for (const char* const name : {"tokenizer_config.json", "additional_chat_templates/rag.jinja"}) {
    EXPECT_EQ(*ReadWholeFile(kFiles, JoinPath(to, name), 100), absl::StrCat("source's ", name));
  }
}

// A checkpoint lists its files in JSON.
TEST(HfFormatTest, ATemplateWhoseNameIsNotUtf8IsPassedOver) {
  const std::string source = Source(), to = FreshDirectory("to");
  Write(source + "/additional_chat_templates/caf\xe9.jinja", "x");
  Write(source + "/additional_chat_templates/caf\xc3\xa9.jinja", "x");
  ASSERT_TRUE(CopyHfSideFiles(kFiles, source, DType::kBF16, to).ok());
  EXPECT_THAT(*kFiles->ListDirectory(to + "/additional_chat_templates"),
              ElementsAre("caf\xc3\xa9.jinja", "rag.jinja"));
}

TEST(HfFormatTest, AJobsTemplateTakesThePlaceOfAllTemplates) {
  const std::string source = Source(), to = FreshDirectory("to");
  const auto names = CopyHfSideFiles(kFiles, HfSideFiles(source, "the job's"), DType::kF32, to);
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names,
              UnorderedElementsAre("config.json", "chat_template.jinja", "tokenizer_config.json"));
  EXPECT_THAT(*ListHfDirectory(kFiles, to), ::testing::UnorderedElementsAreArray(*names));
  EXPECT_EQ(*ReadWholeFile(kFiles, to + "/chat_template.jinja", 100), "the job's");
}

TEST(HfFormatTest, ADirectoryOfTemplatesIsListedByItsFiles) {
  EXPECT_THAT(*ListHfDirectory(kFiles, Source()),
              UnorderedElementsAre(
                  "config.json", "chat_template.jinja", "chat_template.json",
                  "tokenizer_config.json", "README.md", "additional_chat_templates/rag.jinja",
                  "additional_chat_templates/README.md", "additional_chat_templates/folder.jinja"));
  // A file of that name is a file.
  const std::string other = FreshDirectory("other");
  Write(other + "/additional_chat_templates", "x");
  EXPECT_THAT(*ListHfDirectory(kFiles, other), ElementsAre("additional_chat_templates"));
}

TEST(HfFormatTest, AConfigurationThatIsTooLongIsRefused) {
  const std::string source = FreshDirectory("source"), to = FreshDirectory("to");
  Write(source + "/config.json", R"({"model_type": "x"})");
  std::filesystem::resize_file(source + "/config.json", kConfigBytesMax + 1);
  EXPECT_EQ(CopyHfSideFiles(kFiles, source, DType::kF32, to).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_THAT(*kFiles->ListDirectory(to), IsEmpty());
}

// An export replaces a directory that has such files alone.
TEST(HfFormatTest, FilesOfAnExportAreKnownByTheirNames) {
  for (const char* const name :
       {"config.json", "model.safetensors", "model-00001-of-00002.safetensors",
        "model-123456-of-123456.safetensors", "model-carried.safetensors",
        "model.safetensors.index.json", "model.parts.index.json", "tokenizer.json", "vocab.json",
        "additional_chat_templates/rag.jinja"}) {
    EXPECT_TRUE(IsHfFileName(name)) << name;
  }
  for (const char* const name :
       {"", "manifest.json", "my-model.safetensors", "model.safetensors.bak", "model.gguf",
        // A user's own, which look like an export's.
        "model-backup.safetensors", "model_ema.safetensors", "model-1-of-2.safetensors",
        "model-00001-of-00002-of-00003.safetensors", "model-00001-of-00002.safetensors.safetensors",
        "README.md", "rag.jinja", "additional_chat_templates", "additional_chat_templates/notes",
        "additional_chat_templates/tokenizer.json", "optimizer-00001-of-00002.safetensors"}) {
    EXPECT_FALSE(IsHfFileName(name)) << name;
  }
}

TEST(HfFormatTest, APartsNameTellsTheWhole) {
  EXPECT_EQ(HfPartName("a.b", 2, 16), "a.b[2:16]");
  EXPECT_EQ(HfColumnsName("a.b", 2, 16), "a.b[:,2:16]");
  EXPECT_EQ(HfWholeName("a.b[2:16]"), "a.b");
  EXPECT_EQ(HfWholeName("a.b[:,2:16]"), "a.b");
  EXPECT_EQ(HfWholeName("a.b"), "a.b");
  EXPECT_EQ(HfWholeName("a]"), "a]");
}

TEST(HfFormatTest, TheOneFileGoesBeforeAnIndexAndAnIndexBeforeThatOfParts) {
  const std::string directory = FreshDirectory("model");
  Write(directory + "/" + kHfPartsIndexFileName,
        MakeHfIndex({{"a[0:2]", "p.safetensors"}, {"a[2:4]", "p.safetensors"}}, 1));
  auto found = FindHfWeightFiles(kFiles, directory);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->index, directory + "/" + kHfPartsIndexFileName);
  EXPECT_THAT(found->paths, ElementsAre(directory + "/p.safetensors"));
  EXPECT_THAT(*ReadHfTensorNames(kFiles, directory), ElementsAre("a"));

  Write(directory + "/" + kHfIndexFileName,
        MakeHfIndex({{"a", "2.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}}, 1));
  found = FindHfWeightFiles(kFiles, directory);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->index, directory + "/" + kHfIndexFileName);
  EXPECT_THAT(found->paths,
              ElementsAre(directory + "/1.safetensors", directory + "/2.safetensors"));
  EXPECT_THAT(*ReadHfTensorNames(kFiles, directory), ElementsAre("a", "b", "c"));

  WriteTestTensors(directory + "/" + kHfWeightsFileName, {{"d", "F32", {1}}});
  found = FindHfWeightFiles(kFiles, directory);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->index, "");
  EXPECT_THAT(found->weight_map, IsEmpty());
  EXPECT_THAT(found->paths, ElementsAre(directory + "/" + kHfWeightsFileName));
  EXPECT_THAT(*ReadHfTensorNames(kFiles, directory), ElementsAre("d"));
}

TEST(HfFormatTest, AShardThatIsMissingIsNamed) {
  const std::string directory = FreshDirectory("model");
  Write(directory + "/" + kHfIndexFileName,
        MakeHfIndex({{"a", "1.safetensors"}, {"b", "2.safetensors"}}, 1));
  Write(directory + "/1.safetensors", "x");
  const absl::Status missing = CheckHfWeightFilesExist(kFiles, directory);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr(directory + "/2.safetensors"), HasSubstr(kHfIndexFileName)));
  Write(directory + "/2.safetensors", "x");
  EXPECT_TRUE(CheckHfWeightFilesExist(kFiles, directory).ok());
}

TEST(HfFormatTest, AnIndexNamesFilesBesideIt) {
  for (const char* const name : {".", "..", "", "a/b", "/a", "a\\u0000b"}) {
    const auto map = ParseHfIndex(absl::StrCat(R"({"weight_map": {"t": ")", name, R"("}})"), "x");
    EXPECT_EQ(map.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(map.status().message()), HasSubstr("not a file beside the index"));
  }
  EXPECT_EQ(ParseHfIndex(R"({"weight_map": {"t": "..a"}})", "x")->at("t"), "..a");
}

}  // namespace
}  // namespace megatrain
