// The prepared data of a dataset in its cache: when it is used, and when it is made again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/watched_file_system.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/sequences/dataset.h"
#include "engine/data/sequences/file_words.h"
#include "engine/data/sequences/packing.h"
#include "tests/engine/data/sequences/data_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

TEST(DatasetCacheTest, TheCacheIsUsedAndKnowsAChangedFile) {
  TestDirectory directory;
  const std::string path = directory.Write("a.txt", "hello world");
  const JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 4);
  const auto first = OpenWithBytes(spec, directory);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(CachedFiles(directory).size(), 2u);
  const auto modified = std::filesystem::last_write_time(path);
  const auto made = std::filesystem::last_write_time(CachedFiles(directory)[0]);
  const auto again = OpenWithBytes(spec, directory);
  EXPECT_EQ((*again)->fingerprint(), (*first)->fingerprint());
  EXPECT_EQ((*again)->train_report().documents, 1);
  EXPECT_EQ((*again)->train_report().tokens, 12);
  EXPECT_EQ(std::filesystem::last_write_time(CachedFiles(directory)[0]), made);
  // Same size, same time, other content.
  directory.Write("a.txt", "hello there");
  std::filesystem::last_write_time(path, modified);
  const auto changed = OpenWithBytes(spec, directory);
  EXPECT_THAT(TrainTexts(**changed), ElementsAre("hell", "o th", "ere$"));
  EXPECT_NE((*changed)->fingerprint(), (*first)->fingerprint());
  EXPECT_EQ(CachedFiles(directory).size(), 4u);
  // The data does not depend on where the file lies.
  const JobSpec moved =
      SpecOf({{directory.Write("b.txt", "hello there"), DataFormat::kText, ""}}, 4);
  EXPECT_EQ((*OpenWithBytes(moved, directory))->fingerprint(), (*changed)->fingerprint());
}

// A .bin file does not say how wide its ids are.
TEST(DatasetCacheTest, IdsOfAnotherWidthAreScannedAgain) {
  TestDirectory directory;
  const std::string ids("\5\0\1\0\6\0\1\0", 8);  // 5, 1, 6, 1 or 65541, 65542
  JobSpec spec = SpecOf({{directory.Write("t.bin", ids), DataFormat::kTokens, "uint16"}}, 2);
  absl::SleepFor(absl::Milliseconds(100));  // what was just written is not remembered
  const auto narrow = OpenWithBytes(spec, directory);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ((*narrow)->train_sequences(), 2);
  spec.data.train[0].dtype = "uint32";
  EXPECT_THAT(std::string(OpenWithBytes(spec, directory).status().message()),
              ::testing::HasSubstr("65541"));
}

TEST(DatasetCacheTest, ADamagedCacheIsMadeAgain) {
  TestDirectory directory;
  const JobSpec spec =
      SpecOf({{directory.Write("a.txt", std::string(5000, 'a')), DataFormat::kText, ""}}, 64);
  const std::string fingerprint = (*OpenWithBytes(spec, directory))->fingerprint();
  const std::vector<std::string> paths = CachedFiles(directory);
  ASSERT_EQ(paths.size(), 2u);
  for (const std::string& path : paths) {
    const std::string whole = ReadFileOrEmpty(path);
    for (const bool cut : {false, true}) {
      std::string damaged = whole;
      if (cut) {
        damaged.resize(whole.size() / 2);
      } else {
        damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
      }
      std::ofstream(path, std::ios::binary) << damaged;
      if (!cut) {
        // Damage inside is found when it is read, and the file made again at the next start.
        const auto unchecked = OpenWithBytes(spec, directory);
        ASSERT_TRUE(unchecked.ok()) << unchecked.status();
        EXPECT_EQ((*unchecked)->TrainSequence(0).status().code(), absl::StatusCode::kDataLoss);
        EXPECT_FALSE(std::filesystem::exists(path));
      }
      const auto dataset = OpenWithBytes(spec, directory);
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      EXPECT_EQ((*dataset)->fingerprint(), fingerprint);
      EXPECT_EQ(TextOf(*(*dataset)->TrainSequence(0)), std::string(64, 'a'));
      EXPECT_EQ(ReadFileOrEmpty(path), whole);
    }
    std::string damaged = whole;
    damaged[0] = static_cast<char>(damaged[0] ^ 1);
    std::ofstream(path, std::ios::binary) << damaged;
    ASSERT_TRUE(OpenWithBytes(spec, directory, /*verify_data=*/true).ok());
    EXPECT_EQ(ReadFileOrEmpty(path), whole);
  }
}

TEST(DatasetCacheTest, TheSameWordsArePackedInAnotherWay) {
  TestDirectory directory;
  JobSpec spec = SpecOf(
      {{directory.Write("a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"d\"}"), DataFormat::kText, ""}},
      8);
  EXPECT_THAT(TrainTexts(**OpenWithBytes(spec, directory)), ElementsAre("abc$d$"));
  spec.data.packing = false;
  EXPECT_THAT(TrainTexts(**OpenWithBytes(spec, directory)), ElementsAre("abc$", "d$"));
  spec.data.sequence_length = 3;
  EXPECT_THAT(TrainTexts(**OpenWithBytes(spec, directory)), ElementsAre("abc", "d$"));
  EXPECT_EQ(CachedFiles(directory).size(), 4u) << "the words once";
}

// A file is written anew between its hash and its words.
class ChangingFiles : public WatchedFileSystem {
 public:
  explicit ChangingFiles(std::string content)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        content_(std::move(content)) {}
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override {
    if (!path.ends_with(".cache") && ++opened_ == 2) {
      std::ofstream(path, std::ios::binary) << content_;
    }
    return PosixFileSystem()->OpenForReading(path);
  }

 private:
  const std::string content_;
  int opened_ = 0;
};

TEST(DatasetCacheTest, WhatChangesWhileItIsReadIsNotKept) {
  TestDirectory directory;
  for (const auto& [name, before, after] :
       {std::tuple{"a.txt", "some text", "some more"},
        std::tuple{"b.jsonl", R"({"text": "x"})", R"({"text": "y"})"}}) {
    JobSpec spec = SpecOf({{directory.Write(name, before), DataFormat::kText, ""}}, 4);
    spec.data.on_bad_record = OnBadRecord::kSkip;  // it is no matter of a record
    ChangingFiles files(after);
    const auto dataset = OpenDataset(spec, MakeBytesTokenizer(), directory.path(), kBytesVocabulary,
                                     directory / "cache", nullptr, &files);
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kAborted) << dataset.status();
    EXPECT_THAT(std::string(dataset.status().message()),
                testing::HasSubstr(std::string(name) + ": changed while it was read"));
    EXPECT_THAT(CachedFiles(directory), testing::IsEmpty());
  }
}

TEST(DatasetCacheTest, TheCacheDirectoryIsTheJobsWhereItNamesOne) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.txt", "hello"), DataFormat::kText, ""}}, 4);
  spec.data.cache_directory = directory / "own";
  ASSERT_TRUE(OpenWithBytes(spec, directory).ok());
  EXPECT_TRUE(std::filesystem::exists(directory / "own"));
  EXPECT_FALSE(std::filesystem::exists(directory / "cache"));
}

// Replaces the cache file of the directory whose name begins so by one of whole checksums with this
// description, or its own if that is empty, and with `elements`.
template <typename Element>
void Forge(const TestDirectory& directory, const std::string& name, std::string meta,
           const std::vector<Element>& elements) {
  std::string path;
  for (const std::string& file : CachedFiles(directory)) {
    if (std::filesystem::path(file).filename().string().starts_with(name)) path = file;
  }
  const std::string content = ReadFileOrEmpty(path);
  ASSERT_GT(content.size(), sizeof(CacheTrailer));
  CacheTrailer trailer;
  const size_t end = content.size() - sizeof(trailer);
  std::memcpy(&trailer, content.data() + end, sizeof(trailer));
  if (meta.empty()) meta = content.substr(end - trailer.meta_bytes, trailer.meta_bytes);
  std::filesystem::remove(path);
  const auto writer =
      CacheFileWriter::Create(directory / "cache", std::filesystem::path(path).filename(),
                              std::string(trailer.key, sizeof(trailer.key)), sizeof(Element));
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(elements.data(), elements.size()).ok());
  ASSERT_TRUE((*writer)->Finish(meta).ok());
}

TEST(DatasetCacheTest, PreparedDataIsNotTrustedBecauseItsChecksumsAreGood) {
  TestDirectory directory;
  const JobSpec spec = SpecOf({{directory.Write("a.txt", "abcdef"), DataFormat::kText, ""}}, 4);
  ASSERT_TRUE(OpenWithBytes(spec, directory).ok());
  // Descriptions of another kind: the files are made again.
  const std::string counts = R"(,"tokens":7,"truncated_examples":0,"examples_without_target":0})";
  for (const std::string& meta :
       {std::string("[]"), std::string("{}"), "{\"sequences\":\"x\"" + counts,
        "{\"sequences\":5" + counts, "{\"sequences\":-1" + counts,
        "{\"sequences\":18446744073709551615" + counts}) {
    Forge<uint64_t>(directory, "sequences-", meta, {0});
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_THAT(TrainTexts(**dataset), ElementsAre("abcd", "ef$")) << meta;
  }
  const std::string words = R"({"documents":1,"largest_id":257,"turns_left_out":0,"bad_records":)";
  for (const std::string& meta :
       {std::string("7"), words + "0}", words + R"("x","named":[]})", words + R"(0,"named":"x"})",
        words + R"(0,"named":[1]})", words + R"(-1,"named":[]})"}) {
    Forge<uint32_t>(directory, "words-", meta, {'x'});
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_THAT(TrainTexts(**dataset), ElementsAre("abcd", "ef$")) << meta;
  }
  // Sequences that are not in the stream, and tokens that are not the model's, are found when they
  // are read.
  const auto reads = [&](int64_t index) {
    const auto dataset = OpenWithBytes(spec, directory);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? (*dataset)->TrainSequence(index).status().code()
                        : absl::StatusCode::kUnknown;
  };
  Forge<uint64_t>(directory, "sequences-", "", {0, uint64_t{1} << 40});
  EXPECT_EQ(reads(0), absl::StatusCode::kDataLoss);
  EXPECT_EQ(reads(1), absl::StatusCode::kDataLoss);
  Forge<uint64_t>(directory, "sequences-", "", {4, 4});
  EXPECT_EQ(reads(0), absl::StatusCode::kDataLoss);
  EXPECT_EQ(reads(1), absl::StatusCode::kOk);
  Forge<uint64_t>(directory, "sequences-", "", {0, 4});
  Forge<uint32_t>(directory, "words-", "", {kDocumentBit | 'a', 1, 1, 1, kTokenMask, 1, 1});
  EXPECT_EQ(reads(0), absl::StatusCode::kOk);
  EXPECT_EQ(reads(1), absl::StatusCode::kDataLoss);
}

// A record that could not be read once, and was left out, can be now.
TEST(DatasetCacheTest, WordsThatAreMadeAgainWithARecordMoreAreCutAnew) {
  TestDirectory directory;
  JobSpec spec = SpecOf({{directory.Write("a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"defg\"}"),
                          DataFormat::kText, ""}},
                        3);
  ASSERT_TRUE(OpenWithBytes(spec, directory).ok());
  std::vector<uint32_t> words = {'d', 'e', 'f', 'g', kBytesEosId};
  for (uint32_t& word : words) word |= kTargetBit;
  words[0] |= kDocumentBit;
  Forge(directory, "words-",
        R"({"documents":1,"largest_id":257,"turns_left_out":0,"bad_records":1,"named":[":1: ?"]})",
        words);
  spec.data.on_bad_record = OnBadRecord::kSkip;
  EXPECT_THAT(TrainTexts(**OpenWithBytes(spec, directory)), ElementsAre("def", "g$"));
  spec.data.on_bad_record = OnBadRecord::kFail;
  EXPECT_THAT(TrainTexts(**OpenWithBytes(spec, directory)), ElementsAre("abc", "$de", "fg$"));
}

// Anybody who may write the cache may have written the description.
TEST(FileWordsMetaTest, SoManyBadRecordsAreNamedAsThereAre) {
  FileWordsMeta meta;
  for (size_t i = 0; i <= BadRecords::kNamedMax; ++i) {
    EXPECT_TRUE(FileWordsMeta::FromText(meta.ToText()).ok()) << i;
    meta.bad.Add("3: no text");
  }
  EXPECT_TRUE(FileWordsMeta::FromText(meta.ToText()).ok());
  meta.bad.count = 99;
  EXPECT_EQ(FileWordsMeta::FromText(meta.ToText()).status().code(), absl::StatusCode::kDataLoss);
  meta.bad = {.count = 1, .named = {}};
  EXPECT_EQ(FileWordsMeta::FromText(meta.ToText()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace megatrain
