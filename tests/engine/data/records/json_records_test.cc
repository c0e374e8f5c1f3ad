#include "engine/data/records/json_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/data/records/data_file_io.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Read {
  std::vector<std::string> records;
  std::vector<int64_t> lines;
  std::vector<int64_t> elements;
  absl::Status status;
};

Read ReadAll(const std::string& content, size_t chunk_bytes, size_t bytes_max = kRecordBytesMax) {
  TestDirectory directory;
  const std::string path = directory.Write("file.jsonl", content);
  auto reader = DataFileReader::Open(path);
  HashingStream stream(reader->get());
  JsonRecordReader records(&stream, "file.jsonl", chunk_bytes, bytes_max);
  Read read;
  Record record;
  while (true) {
    const absl::StatusOr<bool> more = records.Next(&record);
    read.status = more.status();
    if (!more.ok() || !*more) break;
    read.records.emplace_back(record.json);
    read.lines.push_back(record.line);
    read.elements.push_back(record.element);
    EXPECT_EQ(content.substr(static_cast<size_t>(record.offset), record.json.size()), record.json);
  }
  if (read.status.ok()) {
    // All was read, whatever the way: the digest is that of the file.
    EXPECT_EQ(stream.Digest(), HashText(content));
  }
  return read;
}

class JsonRecordsTest : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(ChunkBytes, JsonRecordsTest, ::testing::Values(1, 2, 3, 7, 1 << 20));

TEST_P(JsonRecordsTest, ReadsLines) {
  const Read read = ReadAll("{\"a\":1}\n{\"b\":2}\n", GetParam());
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.records, ElementsAre("{\"a\":1}", "{\"b\":2}"));
  EXPECT_THAT(read.lines, ElementsAre(1, 2));
  EXPECT_THAT(read.elements, ElementsAre(0, 0));
}

TEST_P(JsonRecordsTest, AcceptsByteOrderMarkCrLfBlankLinesAndNoLastNewline) {
  const Read read =
      ReadAll("\xef\xbb\xbf\r\n{\"a\":1}\r\n\r\n  \n {\"b\":2}  \r\n{\"c\":3}", GetParam());
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.records, ElementsAre("{\"a\":1}", "{\"b\":2}", "{\"c\":3}"));
  EXPECT_THAT(read.lines, ElementsAre(2, 5, 6));
}

// The buffer becomes smaller again.
TEST(LongJsonRecordTest, IsReadBetweenShortOnes) {
  std::string content;
  for (const size_t bytes : {size_t{9}, size_t{1} << 20, size_t{20} << 20, size_t{9},
                             size_t{1} << 20, size_t{9}, size_t{1} << 20, size_t{9}}) {
    content += "{\"a\":\"" + std::string(bytes, 'x') + "\"}\n";
  }
  const Read read = ReadAll(content, 1 << 18);
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.lines, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  std::string all;
  for (const std::string& record : read.records) all += record + "\n";
  EXPECT_TRUE(all == content);
}

TEST_P(JsonRecordsTest, ReadsArrays) {
  const Read read = ReadAll(
      "\xef\xbb\xbf [\n {\"a\": \"]}\\\"{\"},\n{\"b\": [1, {\"c\": \"\\\\\"}]}\n,{\n\"d\": 1}] \n",
      GetParam());
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.records, ElementsAre("{\"a\": \"]}\\\"{\"}", "{\"b\": [1, {\"c\": \"\\\\\"}]}",
                                        "{\n\"d\": 1}"));
  EXPECT_THAT(read.lines, ElementsAre(2, 3, 4));
  EXPECT_THAT(read.elements, ElementsAre(1, 2, 3));
}

// Whoever parses them refuses them one by one, as on lines.
TEST_P(JsonRecordsTest, ElementsThatAreNoObjectsAreRecordsToo) {
  const Read read =
      ReadAll("[null, {\"a\": 1} ,-1.5\n , \"],\\\"{\",[{}, \"]\"],\ntru e ]", GetParam());
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_THAT(read.records,
              ElementsAre("null", "{\"a\": 1}", "-1.5", "\"],\\\"{\"", "[{}, \"]\"]", "tru e"));
  EXPECT_THAT(read.lines, ElementsAre(1, 1, 1, 2, 2, 3));
  EXPECT_THAT(read.elements, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_P(JsonRecordsTest, ReadsNothingFromEmptyFiles) {
  for (const char* content : {"", "\n \r\n", "\xef\xbb\xbf", "[]", " [ ]\n"}) {
    const Read read = ReadAll(content, GetParam());
    EXPECT_TRUE(read.status.ok()) << content << read.status;
    EXPECT_TRUE(read.records.empty()) << content;
  }
}

TEST_P(JsonRecordsTest, RefusesBrokenArraysWithTheLine) {
  const struct {
    const char* content;
    const char* error;
  } cases[] = {
      {"[{\"a\":1},\n{\"b\":2}", "file.jsonl:2: the file ends inside its array, behind element 2"},
      {"[\n{\"a\":1},\n{\"b\":\"2}\n]\n", "file.jsonl:3: the file ends inside element 2"},
      {"[{\"a\":1}\n{\"b\":2}]", "file.jsonl:2: ',' or ']' expected behind element 1"},
      {"[{\"a\":1},\n]", "file.jsonl:2: a comma behind the array's last element, number 1"},
      {"[{\"a\":1},,{}]", "file.jsonl:1: element 2 of the array is missing"},
      {"[ }", "file.jsonl:1: element 1 of the array is missing"},
      {"[{},\nnull", "file.jsonl:2: the file ends inside element 2"},
      {"[null}, {}]", "file.jsonl:1: ',' or ']' expected behind element 1"},
      {"[{\"a\":1}]\n\n[]", "file.jsonl:3: text behind the end of the array"},
      {"[", "file.jsonl:1: the file ends inside its array, behind element 0"},
  };
  for (const auto& broken : cases) {
    const Read read = ReadAll(broken.content, GetParam());
    EXPECT_THAT(std::string(read.status.message()), HasSubstr(broken.error)) << broken.content;
  }
}

TEST_P(JsonRecordsTest, ReadsRecordsUpToTheLimit) {
  const std::string record = "{\"a\":\"xyz\"}";
  for (const std::string& content : {record + "\n" + record, "[" + record + ",\n" + record + "]"}) {
    const Read read = ReadAll(content, GetParam(), record.size());
    EXPECT_TRUE(read.status.ok()) << read.status;
    EXPECT_THAT(read.records, ElementsAre(record, record));
    EXPECT_THAT(std::string(ReadAll(content, GetParam(), record.size() - 1).status.message()),
                HasSubstr("file.jsonl:1: the record that begins here is longer than"));
  }
}

TEST_P(JsonRecordsTest, RefusesRecordsOverTheLimit) {
  const std::string record = "{\"a\":\"" + std::string(100, 'x') + "\"}";
  for (const std::string& content :
       {"{}\n" + record, "{}\n" + record + "\n{}", "[{},\n" + record + "]",
        "[{},\n" + std::string(100, '1') + "]"}) {
    const Read read = ReadAll(content, GetParam(), 50);
    EXPECT_THAT(std::string(read.status.message()),
                HasSubstr("file.jsonl:2: the record that begins here is longer than 50 bytes"));
    EXPECT_EQ(read.records.size(), 1u);
  }
}

}  // namespace
}  // namespace megatrain
