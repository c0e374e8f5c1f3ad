#include "engine/data/records/csv_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/data/records/text_source.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Read {
  std::vector<std::string> records;  // as JSON; a defect as "PLACE: REASON"
  std::string error;
};

Read ReadAll(const std::string& text, size_t chunk_bytes, size_t bytes_max = kRecordBytesMax) {
  TextSource source(text);
  CsvRecordReader reader(&source, "f.csv", chunk_bytes, bytes_max);
  Read read;
  Record record;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&record);
    if (!more.ok()) read.error = std::string(more.status().message());
    if (!more.ok() || !*more) return read;
    if (record.defect.ok()) {
      const nlohmann::json json = nlohmann::json::parse(record.json, nullptr, false);
      EXPECT_TRUE(json.is_object()) << record.json;
      read.records.push_back(json.dump());
    } else {
      EXPECT_EQ(record.json, "") << "of the record before";
      read.records.push_back(reader.Place(record) + ": " + std::string(record.defect.message()));
    }
  }
}

class CsvRecordsTest : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(ChunkBytes, CsvRecordsTest, ::testing::Values(1, 2, 3, 7, 1 << 20));

TEST_P(CsvRecordsTest, RowsAreObjectsOfTexts) {
  const Read read =
      ReadAll("\xef\xbb\xbftext,n\r\nplain,1\r\n\r\n\"a, \"\"b\"\"\nc\",\r\n  spaced ,\"\"\nlast,2",
              GetParam());
  EXPECT_EQ(read.error, "");
  EXPECT_THAT(read.records,
              ElementsAre(R"({"n":"1","text":"plain"})", R"({"n":"","text":"a, \"b\"\nc"})",
                          R"({"n":"","text":"  spaced "})", R"({"n":"2","text":"last"})"));
}

TEST_P(CsvRecordsTest, LoneCarriageReturnsEndRows) {
  EXPECT_THAT(ReadAll("text\ra\rb\r", GetParam()).records,
              ElementsAre(R"({"text":"a"})", R"({"text":"b"})"));
}

TEST_P(CsvRecordsTest, EscapesWhatJsonCannotHold) {
  EXPECT_THAT(ReadAll("text\n\"\\ \t \x01 \x1b \xc3\xa9\"\n", GetParam()).records,
              ElementsAre("{\"text\":\"\\\\ \\t \\u0001 \\u001b \xc3\xa9\"}"));
}

TEST_P(CsvRecordsTest, SomeColumnsHoldJson) {
  const Read read = ReadAll(
      "messages,tools,x\n\"[{\"\"role\"\": \"\"user\"\"}]\",,1\n"
      "\"[1], \"\"more\"\": 2\",,\n[],[],\n",
      GetParam());
  EXPECT_THAT(read.records, ElementsAre(R"({"messages":[{"role":"user"}],"x":"1"})",
                                        ": row 3: column \"messages\": is not JSON text",
                                        R"({"messages":[],"tools":[],"x":""})"));
}

TEST_P(CsvRecordsTest, SomeColumnsHoldJsonOrText) {
  const Read read =
      ReadAll("history,documents\n\"[[\"\"q\"\", \"\"a\"\"]]\",of last year\n,\n", GetParam());
  EXPECT_THAT(read.records,
              ElementsAre(R"({"documents":"of last year","history":[["q","a"]]})", "{}"));
}

// A number of so many digits is JSON that no record may have.
TEST_P(CsvRecordsTest, OnlyListsObjectsAndNullAreJsonWhereATextMayStand) {
  const Read read = ReadAll(
      "history,documents\n1234567890123456789012345,true\nnull,\"\"\"a\"\"\"\n"
      "\xef\xbb\xbf[1], [2]\n[3,{}\n",
      GetParam());
  EXPECT_THAT(read.records,
              ElementsAre(R"({"documents":"true","history":"1234567890123456789012345"})",
                          R"({"documents":"\"a\"","history":null})",
                          "{\"documents\":[2],\"history\":\"\xef\xbb\xbf[1]\"}",
                          R"({"documents":{},"history":"[3"})"));
}

TEST_P(CsvRecordsTest, AByteOrderMarkOrANulIsNoJson) {
  const std::string nul(1, '\0');
  const Read read = ReadAll(
      "messages,history\n\xef\xbb\xbf[1],\n[1]" + nul + ",\n[],[1]" + nul + "\n", GetParam());
  EXPECT_THAT(read.records, ElementsAre(": row 2: column \"messages\": is not JSON text",
                                        ": row 3: column \"messages\": is not JSON text",
                                        R"({"history":"[1]\u0000","messages":[]})"));
}

TEST_P(CsvRecordsTest, ConversationsAndVariablesOfTemplatesAreJson) {
  const Read read = ReadAll(
      "chat_template_kwargs,conversations\n"
      "\"{\"\"a\"\": 1}\",\"[{\"\"from\"\": \"\"human\"\"}]\"\nx,y\n",
      GetParam());
  EXPECT_THAT(read.records,
              ElementsAre(R"({"chat_template_kwargs":{"a":1},"conversations":[{"from":"human"}]})",
                          ": row 3: column \"conversations\": is not JSON text"));
}

TEST_P(CsvRecordsTest, BadRowsAreDefectsWithTheirNumbers) {
  const Read read = ReadAll("a,b\n1,2\n3\n4,5,6\n\"\xff\",8\n9,10\n", GetParam());
  EXPECT_EQ(read.error, "");
  EXPECT_THAT(read.records,
              ElementsAre(R"({"a":"1","b":"2"})", ": row 3: has 1 field; the first row names 2",
                          ": row 4: has 3 fields; the first row names 2",
                          ": row 5: column \"a\": invalid UTF-8 at byte 0 of the field; data files "
                          "must be UTF-8",
                          R"({"a":"9","b":"10"})"));
}

TEST_P(CsvRecordsTest, RefusesWhatCannotBeReadOn) {
  const auto error = [](const std::string& text) { return ReadAll(text, GetParam()).error; };
  EXPECT_THAT(error("a,b\n1,2\n3,x\"y\n5,6\n"), HasSubstr("f.csv: row 3: a quote is misplaced"));
  EXPECT_THAT(error("a\n\"b\"c\n"), HasSubstr("f.csv: row 2: a quote is misplaced"));
  EXPECT_THAT(error("a\nb\n\"c\nd\n"),
              HasSubstr("f.csv: row 3: the file ends inside a field in quotes"));
  EXPECT_THAT(error("a,a\n1,2\n"), HasSubstr("f.csv: row 1: the column \"a\" is there twice"));
  EXPECT_THAT(error(",text\n0,hello\n"),
              AllOf(HasSubstr("f.csv: row 1: a column has no name"), HasSubstr("index=False")));
  EXPECT_THAT(
      ReadAll("a\n\"" + std::string(100, 'x') + "\n" + std::string(100, 'x'), GetParam(), 150)
          .error,
      HasSubstr("f.csv: row 2: is longer than 150 bytes"));
}

TEST_P(CsvRecordsTest, TheLengthIsThatOfOneRow) {
  std::string text = "a\n";
  for (int i = 0; i < 20; ++i) text += std::string(100, 'x') + "\n";
  const Read read = ReadAll(text, GetParam(), 150);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.records.size(), 20u);
}

TEST_P(CsvRecordsTest, RowsBeforeAnErrorAreRead) {
  const Read read = ReadAll("a\r1\r2\rx\"y\n3\n", GetParam());
  EXPECT_THAT(read.records, ElementsAre(R"({"a":"1"})", R"({"a":"2"})"));
  EXPECT_THAT(read.error, HasSubstr("f.csv: row 4: a quote is misplaced"));
  EXPECT_THAT(ReadAll("a\xff\rx\"y\n", GetParam()).error,
              HasSubstr("f.csv: row 1: a column's name is not UTF-8"));
}

TEST_P(CsvRecordsTest, SurplusFieldsAreOnlyCounted) {
  const Read read = ReadAll("a,b\n" + std::string(100'000, ',') + "\n1,2\n", GetParam());
  EXPECT_EQ(read.error, "");
  EXPECT_THAT(read.records, ElementsAre(": row 2: has 100001 fields; the first row names 2",
                                        R"({"a":"1","b":"2"})"));
  EXPECT_THAT(ReadAll(std::string(65'536, ',') + "\n1,2\n", GetParam()).error,
              HasSubstr("f.csv: row 1: names 65537 columns; at most 65536 are read"));
}

TEST_P(CsvRecordsTest, TheGreatestNumberOfColumnsIsTaken) {
  // All of them lack a name, which is looked at behind their number.
  EXPECT_THAT(ReadAll(std::string(65'535, ',') + "\n1,2\n", GetParam()).error,
              HasSubstr("f.csv: row 1: a column has no name"));
}

TEST_P(CsvRecordsTest, AFieldThatIsLeftOutLeavesNothingBehind) {
  const Read read = ReadAll("messages,x,tools\n,1,\n,\"\",[]\n", GetParam());
  EXPECT_EQ(read.error, "");
  EXPECT_THAT(read.records, ElementsAre(R"({"x":"1"})", R"({"tools":[],"x":""})"));
}

TEST_P(CsvRecordsTest, InvalidTextIsNamedWithItsColumnAndPlace) {
  const Read read = ReadAll("a,history\n1,\"[2, \xff]\"\n3,ab\xc3\xa9\n", GetParam());
  EXPECT_EQ(read.error, "");
  EXPECT_THAT(read.records,
              ElementsAre(": row 2: column \"history\": invalid UTF-8 at byte 4 of the field; data "
                          "files must be UTF-8",
                          "{\"a\":\"3\",\"history\":\"ab\u00e9\"}"));
}

TEST_P(CsvRecordsTest, NothingIsReadFromEmptyFiles) {
  for (const char* text : {"", "\n\r\n", "a,b\n", "\xef\xbb\xbf"}) {
    const Read read = ReadAll(text, GetParam());
    EXPECT_EQ(read.error, "") << text;
    EXPECT_THAT(read.records, IsEmpty()) << text;
  }
}

TEST(CsvShortReadsTest, TheByteOrderMarkIsFoundInAFileThatComesByteByByte) {
  TextSource source("\xef\xbb\xbftext\na\n", /*step=*/1);
  CsvRecordReader reader(&source, "f.csv");
  Record record;
  const absl::StatusOr<bool> more = reader.Next(&record);
  ASSERT_TRUE(more.ok() && *more) << more.status();
  EXPECT_EQ(record.json, R"({"text":"a"})");
}

}  // namespace
}  // namespace megatrain
