#include "engine/data/records/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/engine/data/records/compressed_text.h"
#include "tests/engine/data/records/text_source.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

struct Content {
  std::string text;
  absl::Status status;
};

Content ReadAll(Compression compression, const std::string& compressed, size_t step,
                size_t read_bytes) {
  TextSource source(compressed, step);
  const auto stream = Decompress(compression, &source, "f.gz");
  Content content;
  std::string buffer(read_bytes, '\0');
  while (true) {
    const absl::StatusOr<size_t> got = stream->Read(buffer.data(), buffer.size());
    content.status = got.status();
    if (!got.ok()) break;
    if (*got == 0) {
      EXPECT_TRUE(source.at_end());
      break;
    }
    content.text.append(buffer, 0, *got);
  }
  return content;
}

// Half of it compresses well, half hardly.
std::string Text() {
  std::mt19937 random(1);
  std::string text(300000, 'a');
  for (size_t i = 0; i < text.size() / 2; ++i) text[i] = static_cast<char>(random() & 0xff);
  return text;
}

class ByteSourceTest : public ::testing::TestWithParam<Compression> {
 protected:
  std::string Compress(const std::string& text) const {
    return GetParam() == Compression::kGzip ? Gzip(text) : Zstd(text);
  }
};
INSTANTIATE_TEST_SUITE_P(Compressions, ByteSourceTest,
                         ::testing::Values(Compression::kGzip, Compression::kZstd));

TEST_P(ByteSourceTest, GivesTheTextWhateverThePieces) {
  const std::string text = Text();
  const std::string compressed = Compress(text);
  for (const size_t step : {size_t{1}, size_t{1000}, compressed.size()}) {
    for (const size_t read_bytes : {size_t{7}, size_t{65536}, text.size() * 2}) {
      const Content content = ReadAll(GetParam(), compressed, step, read_bytes);
      EXPECT_TRUE(content.status.ok()) << content.status;
      EXPECT_TRUE(content.text == text) << step << " " << read_bytes;
    }
  }
}

TEST_P(ByteSourceTest, JoinsMembersAndFrames) {
  const Content content =
      ReadAll(GetParam(), Compress("one\n") + Compress("") + Compress("two\n"), 100, 100);
  EXPECT_TRUE(content.status.ok()) << content.status;
  EXPECT_EQ(content.text, "one\ntwo\n");
  EXPECT_EQ(ReadAll(GetParam(), Compress(""), 100, 100).text, "");
  EXPECT_TRUE(ReadAll(GetParam(), Compress(""), 100, 100).status.ok());
}

TEST_P(ByteSourceTest, RefusesWhatIsCutShortDamagedOrSomethingElse) {
  const std::string compressed = Compress(Text());
  for (const size_t kept : {size_t{0}, size_t{3}, compressed.size() / 2, compressed.size() - 1}) {
    const Content content = ReadAll(GetParam(), compressed.substr(0, kept), 4096, 4096);
    EXPECT_EQ(content.status.code(), absl::StatusCode::kInvalidArgument) << kept;
    EXPECT_THAT(std::string(content.status.message()), HasSubstr("f.gz: its ")) << kept;
    EXPECT_THAT(std::string(content.status.message()), HasSubstr("the file is cut short")) << kept;
  }
  EXPECT_THAT(std::string(ReadAll(GetParam(), compressed + "x", 4096, 4096).status.message()),
              HasSubstr("f.gz: its "));
  const Content plain = ReadAll(GetParam(), "{\"text\": \"not compressed\"}", 4096, 4096);
  EXPECT_THAT(std::string(plain.status.message()), HasSubstr("is damaged: "));
  if (GetParam() == Compression::kGzip) {  // which has a checksum; zstd's is an option
    std::string damaged = compressed;
    damaged[compressed.size() / 3] ^= 1;
    EXPECT_FALSE(ReadAll(GetParam(), damaged, 4096, 4096).status.ok());
  }
}

TEST_P(ByteSourceTest, AnErrorTellsItsPlaceInTheCompressedFile) {
  const std::string cut = Compress(Text()).substr(0, 100000);
  ASSERT_EQ(cut.size(), 100000u);
  for (const size_t step : {size_t{1000}, cut.size()}) {
    EXPECT_THAT(std::string(ReadAll(GetParam(), cut, step, 4096).status.message()),
                HasSubstr("cut short (near byte 100000 of the compressed file)"))
        << step;
  }
}

// Gives a text and then an error.
class FailingSource : public TextSource {
 public:
  using TextSource::TextSource;
  absl::StatusOr<size_t> Read(void* to, size_t bytes) override {
    if (at_end()) return absl::DataLossError("the disk has a bad block");
    return TextSource::Read(to, bytes);
  }
};

TEST_P(ByteSourceTest, HandsOnWhatReadingSays) {
  const std::string text = Text();
  FailingSource source(Compress(text).substr(0, 100000), 1000);
  const auto stream = Decompress(GetParam(), &source, "f.gz");
  std::string buffer(4096, '\0');
  size_t done = 0;
  absl::StatusOr<size_t> got = stream->Read(buffer.data(), buffer.size());
  for (; got.ok() && *got > 0; got = stream->Read(buffer.data(), buffer.size())) done += *got;
  EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss) << got.status();
  EXPECT_EQ(got.status().message(), "the disk has a bad block");
  EXPECT_LT(done, text.size());
}

TEST(ZstdSourceTest, RefusesAWindowThatWouldTakeTooMuchMemory) {
  // A frame header that claims a window of 2 GiB: magic, no single segment, exponent 21 (10 + 21).
  const std::string frame("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9);
  const Content content = ReadAll(Compression::kZstd, frame, 100, 100);
  EXPECT_THAT(std::string(content.status.message()), HasSubstr("too much memory"));
}

}  // namespace
}  // namespace megatrain
