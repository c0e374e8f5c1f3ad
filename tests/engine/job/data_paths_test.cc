#include "engine/job/data_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/watched_file_system.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataPathsTest : public ::testing::Test {
 protected:
  DataPathsTest() {
    for (const char* name : {"b.jsonl", "a.jsonl.gz", "sub/c.txt", "sub/deep/d.json", ".hidden.md",
                             ".cache/x.md", "sub/e.CSV", "c-1.txt.zst"}) {
      fs::create_directories(fs::path(directory_ / "data" + "/" + name).parent_path());
      directory_.Write(std::string("data/") + name, "x");
    }
  }
  // The paths beneath data/ that an entry leads to, or the error.
  std::vector<std::string> Expand(const std::string& path, DataFormat format = DataFormat::kText) {
    const std::string base = directory_ / "data/";
    const auto files = ExpandDataFile({directory_ / path, format, ""}, PosixFileSystem());
    if (!files.ok()) return {std::string(files.status().message())};
    std::vector<std::string> names;
    for (const DataFile& file : *files) {
      EXPECT_EQ(file.format, format);
      names.push_back(file.path.substr(base.size()));
    }
    return names;
  }
  TestDirectory directory_;
};

TEST_F(DataPathsTest, ADirectoryStandsForTheFilesBeneathIt) {
  EXPECT_THAT(Expand("data"), ElementsAre("a.jsonl.gz", "b.jsonl", "c-1.txt.zst", "sub/c.txt",
                                          "sub/deep/d.json", "sub/e.CSV"));
}

TEST_F(DataPathsTest, ADirectoryMayHoldNothingElse) {
  directory_.Write("data/sub/notes.md", "x");
  EXPECT_THAT(Expand("data"),
              ElementsAre(HasSubstr("data/sub/notes.md: is in a directory of format text and is no "
                                    "file of it; such a directory may hold .txt, .jsonl")));
  fs::remove(directory_ / "data/sub/notes.md");
  EXPECT_THAT(Expand("data", DataFormat::kMessages),
              ElementsAre(HasSubstr("c-1.txt.zst: is in a directory of format messages")));
  EXPECT_THAT(Expand("data", DataFormat::kTokens),
              ElementsAre(HasSubstr("may hold .npy and .bin files")));
  fs::create_directories(directory_ / "data/empty");
  EXPECT_THAT(Expand("data/empty"), ElementsAre(HasSubstr("data/empty: holds no data file")));
}

TEST_F(DataPathsTest, GlobsMatchNamesAndDirectories) {
  EXPECT_THAT(Expand("data/*.jsonl*"), ElementsAre("a.jsonl.gz", "b.jsonl"));
  EXPECT_THAT(Expand("data/[ab].jsonl"), ElementsAre("b.jsonl"));
  EXPECT_THAT(Expand("data/s*/?.*"), ElementsAre("sub/c.txt", "sub/e.CSV"));
  EXPECT_THAT(Expand("data/*/deep/d.json"), ElementsAre("sub/deep/d.json"));
  EXPECT_THAT(Expand("data/**/*.json"), ElementsAre("sub/deep/d.json"));
  EXPECT_THAT(Expand("data/**/*.txt*"), ElementsAre("c-1.txt.zst", "sub/c.txt"));
  // A directory that matches stands for its files.
  EXPECT_THAT(Expand("data/s*"), ElementsAre("sub/c.txt", "sub/deep/d.json", "sub/e.CSV"));
  EXPECT_THAT(Expand("data/.h*"), ElementsAre(".hidden.md"));
  EXPECT_THAT(Expand("data/.c*/x.md"), ElementsAre(".cache/x.md"));
  EXPECT_THAT(Expand("data/**/*.md"), ElementsAre(HasSubstr("no file matches this pattern")))
      << "what is hidden is passed over, whole directories too";
  EXPECT_THAT(Expand("data/*.npy"), ElementsAre(HasSubstr("*.npy: no file matches this pattern")));
  EXPECT_THAT(Expand("none/*/x"), ElementsAre(HasSubstr("no file matches")));
}

// The last * also leads to directories, which stand for what ** leads to.
TEST_F(DataPathsTest, AFileThatAPatternReachesInSeveralWaysIsThereOnce) {
  for (const char* const all : {"data/**/*", "data/**", "data/**/**"}) {
    EXPECT_THAT(Expand(all), ElementsAre("a.jsonl.gz", "b.jsonl", "c-1.txt.zst", "sub/c.txt",
                                         "sub/deep/d.json", "sub/e.CSV"))
        << all;
  }
}

TEST_F(DataPathsTest, FilesAreInTheOrderOfTheirPaths) {
  directory_.Write("data/sub-1.txt", "x");  // '-' comes before '/'
  EXPECT_THAT(Expand("data/s*"),
              ElementsAre("sub-1.txt", "sub/c.txt", "sub/deep/d.json", "sub/e.CSV"));
}

TEST_F(DataPathsTest, EntriesKeepTheirOrderAndTheirFilesWhatTheySay) {
  directory_.Write("data/x.bin", "x");
  DataFile tokens = {directory_ / "data/*.bin", DataFormat::kTokens, "uint32"};
  tokens.name = "code";
  tokens.weight = 0.25;
  const auto files = ExpandDataFiles({tokens, {directory_ / "data/[ab].*", DataFormat::kText, ""}},
                                     PosixFileSystem());
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 3u);
  EXPECT_EQ(files->at(0).path, directory_ / "data/x.bin");
  EXPECT_EQ(files->at(0).format, DataFormat::kTokens);
  EXPECT_EQ(files->at(0).dtype, "uint32");
  EXPECT_EQ(files->at(0).name, "code");
  EXPECT_EQ(files->at(0).weight, 0.25);
  EXPECT_EQ(files->at(1).path, directory_ / "data/a.jsonl.gz");
  EXPECT_EQ(files->at(2).path, directory_ / "data/b.jsonl");
}

TEST_F(DataPathsTest, WhatIsThereIsNoGlob) {
  directory_.Write("data/[b].jsonl", "x");
  EXPECT_THAT(Expand("data/[b].jsonl"), ElementsAre("[b].jsonl"));
  // A file that is not there is told when it is opened.
  EXPECT_THAT(Expand("data/none.txt"), ElementsAre("none.txt"));
}

TEST_F(DataPathsTest, ParquetWithoutItsReaderIsRefusedWithWhatToDo) {
  setenv("MEGATRAIN_PARQUET", "/nowhere", 1);
  directory_.Write("data/sub/x.parquet", "PAR1");
  for (const char* path : {"data", "data/sub/*.parquet", "data/sub/x.parquet"}) {
    EXPECT_THAT(Expand(path),
                ElementsAre(HasSubstr("x.parquet: Parquet is read with Apache Arrow, which")));
  }
}

TEST_F(DataPathsTest, OnlyTextsAreReadCompressed) {
  directory_.Write("data/x.parquet.gz", "x");
  for (const char* path : {"data/x.parquet.gz", "data/*.parquet.gz"}) {
    EXPECT_THAT(
        Expand(path),
        ElementsAre(HasSubstr("Parquet are not read compressed; decompress it with gunzip")));
  }
  EXPECT_THAT(
      Expand("data/x.npy.zst", DataFormat::kTokens),
      ElementsAre(HasSubstr("token ids are not read compressed; decompress it with unzstd")));
}

TEST_F(DataPathsTest, LinksInACircleEnd) {
  fs::create_directory_symlink(directory_ / "data/sub", directory_ / "data/sub/loop");
  EXPECT_THAT(Expand("data"), ElementsAre(HasSubstr("a link may lead in a circle")));
}

TEST_F(DataPathsTest, DirectoriesMayBeNestedThirtyTwoDeep) {
  std::string nested = "data/nest";
  for (int i = 0; i < 32; ++i) nested += "/d";
  fs::create_directories(directory_ / nested);
  directory_.Write(nested + "/a.txt", "x");
  for (const char* const path : {"data/nest", "data/nest/**/*.txt"}) {
    EXPECT_THAT(Expand(path), ElementsAre(nested.substr(5) + "/a.txt")) << path;
  }
  fs::create_directories(directory_ / (nested + "/d"));
  directory_.Write(nested + "/d/b.txt", "x");
  EXPECT_THAT(Expand("data/nest"), ElementsAre(HasSubstr("is more than 32 directories deep")));
}

// The directory /wide has half as many names as one entry may lead to, and one of them is a
// directory with `below` names. All others are hidden.
class WideFileSystem : public WatchedFileSystem {
 public:
  explicit WideFileSystem(int64_t below)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }), below_(below) {}
  bool IsDirectory(const std::string& path) override {
    return path == "/wide" || path == "/wide/below";
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    if (path != "/wide") return std::vector<std::string>(static_cast<size_t>(below_), ".x");
    std::vector<std::string> names(kDataPathsMax / 2, ".x");
    names.back() = "below";
    return names;
  }

 private:
  const int64_t below_;
};

TEST_F(DataPathsTest, TheNamesOfAllDirectoriesTogetherAreLimited) {
  const int64_t below = kDataPathsMax - kDataPathsMax / 2 - 2;  // beside those of the directories
  for (const auto& [more, message] : {std::pair(0, "/wide: holds no data file"),
                                      std::pair(1, "/wide: leads to more than 2000000 files")}) {
    WideFileSystem files(below + more);
    const auto found = ExpandDataFile({"/wide", DataFormat::kText, ""}, &files);
    EXPECT_TRUE(absl::IsInvalidArgument(found.status())) << found.status();
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(message));
  }
}

TEST_F(DataPathsTest, ChecksThatEveryEntryCanBeOpened) {
  const auto check = [&](const std::string& path) {
    return CheckDataFiles(
        {{directory_ / "data", DataFormat::kText, ""}, {directory_ / path, DataFormat::kText, ""}},
        PosixFileSystem());
  };
  EXPECT_TRUE(check("data/b.jsonl").ok());
  EXPECT_EQ(check("data/none.jsonl").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(check("data/*.none").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
