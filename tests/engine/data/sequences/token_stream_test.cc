#include "engine/data/sequences/token_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

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

  absl::StatusOr<std::vector<uint32_t>> Words(const std::string& cache, int threads,
                                              size_t long_record_bytes,
                                              const ByteProgress& progress = {}) {
    TokenStreamOptions options;
    options.words.encoder.tokenizer = tokenizer_.get();
    options.words.encoder.eos_id = kBytesEosId;
    options.words.encoder.vocabulary = vocabulary_;
    options.words.chunk_bytes = 64;
    options.words.long_record_bytes = long_record_bytes;
    options.cache_directory = directory_ / cache;
    options.threads = threads;
    const auto stream = TokenStream::Open(files_, options, progress);
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
