#include "engine/job/data_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr DataFormat kFormats[] = {DataFormat::kText,     DataFormat::kTokens,
                                   DataFormat::kAlpaca,   DataFormat::kShareGpt,
                                   DataFormat::kMessages, DataFormat::kPreference};

TEST(DataFormatTest, EachHasAWordOfItsOwn) {
  for (const DataFormat format : kFormats) {
    const auto parsed = ParseDataFormat(DataFormatName(format));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, format);
    EXPECT_THAT(std::string(kDataFormatNames), HasSubstr(DataFormatName(format)));
  }
  for (const char* const word : {"", "Text", "json", "text "}) {
    const absl::Status refused = ParseDataFormat(word).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << word;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(kDataFormatNames));
  }
}

TEST(DataFormatTest, TheEndOfANameTellsTheKind) {
  struct Case {
    const char* path;
    FileContent content;
    Compression compression;
    bool known;
  };
  for (const Case& c :
       std::vector<Case>{{"/data/a.txt", FileContent::kText, Compression::kNone, true},
                         {"a.jsonl", FileContent::kJson, Compression::kNone, true},
                         {"a.json", FileContent::kJson, Compression::kNone, true},
                         {"A.CSV", FileContent::kCsv, Compression::kNone, true},
                         {"a.parquet", FileContent::kParquet, Compression::kNone, true},
                         {"a.npy", FileContent::kIds, Compression::kNone, true},
                         {"a.bin", FileContent::kIds, Compression::kNone, true},
                         {"a.jsonl.gz", FileContent::kJson, Compression::kGzip, true},
                         {"a.TXT.Zst", FileContent::kText, Compression::kZstd, true},
                         {"a.parquet.gz", FileContent::kParquet, Compression::kGzip, false},
                         {"a.npy.zst", FileContent::kIds, Compression::kZstd, false},
                         {"a.gz", FileContent::kText, Compression::kGzip, false},
                         {"a.txt.gz.gz", FileContent::kText, Compression::kGzip, false},
                         {"a.json5", FileContent::kText, Compression::kNone, false},
                         {"a.jsonl/readme", FileContent::kText, Compression::kNone, false},
                         {"a", FileContent::kText, Compression::kNone, false}}) {
    const FileKind kind = KindOfFile(c.path);
    EXPECT_EQ(kind.content, c.content) << c.path;
    EXPECT_EQ(kind.compression, c.compression) << c.path;
    EXPECT_EQ(kind.known, c.known) << c.path;
  }
}

TEST(DataFormatTest, IdsAreTokensTextIsTextAndRecordsAreAllElse) {
  for (const DataFormat format : kFormats) {
    const bool tokens = format == DataFormat::kTokens, text = format == DataFormat::kText;
    EXPECT_EQ(MayHold(KindOfFile("a.npy"), format), tokens);
    EXPECT_EQ(MayHold(KindOfFile("a.bin"), format), tokens);
    EXPECT_EQ(MayHold(KindOfFile("a.txt.gz"), format), text);
    EXPECT_EQ(MayHold(KindOfFile("a.json"), format), !tokens);
    EXPECT_EQ(MayHold(KindOfFile("a.csv"), format), !tokens);
    EXPECT_EQ(MayHold(KindOfFile("a.parquet"), format), !tokens);
    EXPECT_EQ(MayHold(KindOfFile("a.md"), format), !tokens) << "nothing is known of it";
  }
}

}  // namespace
}  // namespace megatrain
