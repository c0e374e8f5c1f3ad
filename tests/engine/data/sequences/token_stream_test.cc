#include "engine/data/sequences/token_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/data/sequences/packing.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

class TokenStreamTest : public testing::Test {
 protected:
  // Files of records, each longer than `records` bytes or a little one.
  void MakeFiles(int count, int records, size_t long_bytes) {
    for (int i = 0; i < count; ++i) {
      std::string lines;
      for (int record = 0; record < records; ++record) {
        const size_t bytes = (i + record) % 3 == 0 ? 1 : long_bytes;
        lines +=
            "{\"text\": \"" + std::string(bytes, static_cast<char>('a' + record % 26)) + "\"}\n\n";
      }
      const std::string name = std::to_string(files_.size()) + ".jsonl";
      files_.push_back({directory_.Write(name, lines), DataFormat::kText, ""});
    }
  }

  absl::StatusOr<std::unique_ptr<TokenStream>> Open(const std::string& cache, int threads,
                                                    size_t long_record_bytes,
                                                    const ByteProgress& progress = {}) {
    TokenStreamOptions options;
    options.words.encoder.tokenizer = tokenizer_.get();
    options.words.encoder.eos_id = eos_;
    options.words.encoder.around = around_;
    options.words.encoder.vocabulary = vocabulary_;
    options.words.skip_bad_records = skip_;
    options.words.chunk_bytes = 64;
    options.words.long_record_bytes = long_record_bytes;
    options.cache_directory = directory_ / cache;
    options.threads = threads;
    return TokenStream::Open(files_, options, progress);
  }
  absl::StatusOr<std::vector<uint32_t>> Words(const std::string& cache, int threads,
                                              size_t long_record_bytes,
                                              const ByteProgress& progress = {}) {
    const auto stream = Open(cache, threads, long_record_bytes, progress);
    if (!stream.ok()) return stream.status();
    std::vector<uint32_t> words(static_cast<size_t>((*stream)->words()));
    const absl::Status read = (*stream)->Read(0, (*stream)->words(), words.data());
    if (!read.ok()) return read;
    return words;
  }

  TestDirectory directory_;
  const std::shared_ptr<const Tokenizer> tokenizer_ = MakeBytesTokenizer();
  std::vector<DataFile> files_;
  int64_t vocabulary_ = kBytesVocabulary;
  int32_t eos_ = kBytesEosId;
  SpecialIds around_;
  bool skip_ = false;
};

TEST_F(TokenStreamTest, LongRecordsOfManyFilesTakeTurnsAndGiveTheSameWords) {
  MakeFiles(20, 6, 1000);
  const auto expected = Words("one", 1, size_t{1} << 20);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int threads : {1, 4}) {
    const auto words = Words("turns" + std::to_string(threads), threads, 500);
    ASSERT_TRUE(words.ok()) << words.status();
    EXPECT_TRUE(*words == *expected) << threads;
  }
}

TEST_F(TokenStreamTest, LongRecordsOfOneFileThatAllThreadsMakeGiveTheSameWords) {
  MakeFiles(1, 60, 1000);
  const auto expected = Words("one", 1, size_t{1} << 20);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto words = Words("turns", 3, 500);
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_TRUE(*words == *expected);
}

// Words that were made for a larger vocabulary are made again, which finds the record.
TEST_F(TokenStreamTest, TheLargestIdOfLongRecordsIsKnown) {
  MakeFiles(1, 6, 1000);
  ASSERT_TRUE(Words("cache", 1, 500).ok());
  vocabulary_ = 'b';
  const absl::Status refused = Words("cache", 1, 500).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
}

// It is the tokenizer that is wrong, not the record.
TEST_F(TokenStreamTest, AnIdOutsideTheVocabularyIsNoBadRecord) {
  skip_ = true;
  vocabulary_ = 'b';
  for (const std::string name : {"a.jsonl", "a.txt"}) {
    files_ = {{directory_.Write(name, "{\"text\": \"abc\"}\n"), DataFormat::kText, ""}};
    const absl::Status refused = Words("cache", 1, 500).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_NE(refused.message().find("is not below the model's vocabulary of 98"),
              absl::string_view::npos)
        << refused;
  }
}

TEST_F(TokenStreamTest, AnElementOfAnArrayThatIsNoObjectIsABadRecord) {
  files_ = {{directory_.Write("a.json", "[{\"text\": \"a\"}, null, {\"text\": \"b\"}]"),
             DataFormat::kText, ""}};
  const absl::Status refused = Words("cache", 1, 500).status();
  EXPECT_NE(refused.message().find("a.json:1: element 2: the record is null; an object"),
            absl::string_view::npos)
      << refused;
  skip_ = true;
  const auto stream = Open("cache", 1, 500);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ((*stream)->documents(), 2);
  EXPECT_EQ((*stream)->bad_records().count, 1);
}

// The words of one setting are not taken from the cache for another.
TEST_F(TokenStreamTest, IdsAroundATextAndItsEndMakeOtherWords) {
  files_ = {{directory_.Write("a.jsonl", "{\"text\": \"a\"}\n"), DataFormat::kText, ""}};
  const auto words = [this] {
    const auto read = Words("cache", 1, 500);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? *read : std::vector<uint32_t>();
  };
  const uint32_t a = 'a' | kTargetBit | kDocumentBit;
  EXPECT_EQ(words(), (std::vector<uint32_t>{a, kBytesEosId | kTargetBit}));
  around_.after = {'y'};
  EXPECT_EQ(words(), (std::vector<uint32_t>{a, 'y' | kTargetBit, kBytesEosId | kTargetBit}));
  around_ = {{'x'}, {}};
  EXPECT_EQ(words(), (std::vector<uint32_t>{'x' | kTargetBit | kDocumentBit, 'a' | kTargetBit,
                                            kBytesEosId | kTargetBit}));
  around_ = {};
  eos_ = kBytesPadId;
  EXPECT_EQ(words(), (std::vector<uint32_t>{a, kBytesPadId | kTargetBit}));
}

// The second file has nothing but a bad record.
TEST_F(TokenStreamTest, AnyRangeIsReadWhereverFilesEnd) {
  skip_ = true;
  for (const char* text :
       {"{\"text\": \"abc\"}", "3", "{\"text\": \"d\"}", "{\"text\": \"efgh\"}"}) {
    const std::string name = std::to_string(files_.size()) + ".jsonl";
    files_.push_back({directory_.Write(name, text), DataFormat::kText, ""});
  }
  const auto stream = Open("cache", 2, 500);
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::string expected = "abc$d$efgh$";
  ASSERT_EQ((*stream)->words(), static_cast<int64_t>(expected.size()));
  EXPECT_EQ((*stream)->documents(), 3);
  EXPECT_EQ((*stream)->bad_records().count, 1);
  for (size_t first = 0; first < expected.size(); ++first) {
    for (size_t count = 0; first + count <= expected.size(); ++count) {
      std::vector<uint32_t> words(count);
      ASSERT_TRUE((*stream)
                      ->Read(static_cast<int64_t>(first), static_cast<int64_t>(count), words.data())
                      .ok());
      std::string text;
      for (const uint32_t word : words) {
        const uint32_t id = word & kTokenMask;
        text += id == kBytesEosId ? '$' : static_cast<char>(id);
      }
      EXPECT_EQ(text, expected.substr(first, count)) << first << " " << count;
    }
  }
}

// The turn is still held when the bytes of a long record are reported.
TEST_F(TokenStreamTest, WaitingForTheTurnIsAbandonedWhenAsked) {
  files_ = {{directory_.Write("long.jsonl", "{\"text\": \"" + std::string(1000, 'a') + "\"}\n"),
             DataFormat::kText, ""}};
  int waited = 0;
  const auto words = Words("holds", 2, 500, [&](int64_t bytes) {
    if (bytes == 0 || waited > 0) return absl::OkStatus();
    for (const int threads : {1, 3}) {
      int calls = 0;
      const auto other = Words("waits", threads, 500, [&](int64_t) {
        return ++calls == 5 ? absl::CancelledError("abandoned") : absl::OkStatus();
      });
      EXPECT_EQ(other.status().code(), absl::StatusCode::kCancelled);
      ++waited;
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(waited, 2);
  EXPECT_TRUE(Words("waits", 1, 500).ok());
}

TEST_F(TokenStreamTest, NobodyKeepsTheTurnAfterAnError) {
  MakeFiles(20, 6, 1000);
  const std::string record = "{\"text\": \"" + std::string(1000, 'a') + "\"}\n";
  directory_.Write("7.jsonl", record + "[\n" + record);
  EXPECT_EQ(Words("cache", 4, 500).status().code(), absl::StatusCode::kInvalidArgument);
  directory_.Write("7.jsonl", record);
  EXPECT_TRUE(Words("cache", 4, 500).ok());
}

}  // namespace
}  // namespace megatrain
