#include "engine/hf/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TestPath() {
  return JoinPath(::testing::TempDir(),
                  std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
                      ".safetensors");
}

std::string Length(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

absl::Status OpenBytes(const std::string& bytes) {
  const std::string path = TestPath();
  EXPECT_TRUE(WriteFileSynced(PosixFileSystem(), path, bytes).ok());
  return SafetensorsReader::Open(PosixFileSystem(), path).status();
}

// A file with this header and `data_bytes` zero bytes.
absl::Status OpenHeader(const std::string& header, size_t data_bytes) {
  return OpenBytes(Length(header.size()) + header + std::string(data_bytes, '\0'));
}

void ExpectRefused(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  // Every message names the file.
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(TestPath()), HasSubstr(what)));
}

TEST(SafetensorsTest, WhatIsWrittenIsRead) {
  FileSystem* const files = PosixFileSystem();
  const std::string path = TestPath();
  const std::vector<SafetensorsDeclaration> tensors = {
      {"a.weight", "F32", {2, 3}}, {"empty", "F32", {0, 5}}, {"b", "BF16", {3}}, {"c", "I16", {}}};
  auto writer = SafetensorsWriter::Create(files, path, tensors);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const float a[6] = {1, 2, 3, 4, 5, 6};
  const uint16_t b[3] = {7, 8, 9};
  const int16_t c = -5;
  // Pieces need not follow the tensors.
  ASSERT_TRUE((*writer)->Append(a, 10).ok());
  ASSERT_TRUE((*writer)->Append(reinterpret_cast<const char*>(a) + 10, 14).ok());
  ASSERT_TRUE((*writer)->Append(b, 6).ok());
  ASSERT_TRUE((*writer)->Append(&c, 2).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_EQ((*writer)->data_bytes(), 24 + 6 + 2);
  EXPECT_EQ((*writer)->file_bytes(), SafetensorsFileBytes(tensors));

  const auto content = ReadWholeFile(files, path, 10000);
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(static_cast<int64_t>(content->size()), (*writer)->file_bytes());
  EXPECT_EQ(HashBytes(*content), (*writer)->Hash());
  EXPECT_THAT(*content, HasSubstr(R"({"__metadata__":{"format":"pt"},"a.weight":)"));

  auto reader = SafetensorsReader::Open(files, path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->header().data_offset % 8, 0);
  EXPECT_EQ((*reader)->header().metadata.at("format"), "pt");
  ASSERT_EQ((*reader)->header().tensors.size(), 4u);
  const SafetensorsTensor* const found = (*reader)->Find("a.weight");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->dtype, "F32");
  EXPECT_EQ(found->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(found->elements, 6);
  float values[2];
  ASSERT_TRUE((*reader)->Read(*found, 8, values, 8).ok());
  EXPECT_EQ(values[0], 3.0f);
  EXPECT_EQ(values[1], 4.0f);
  int16_t scalar = 0;
  ASSERT_TRUE((*reader)->Read(*(*reader)->Find("c"), 0, &scalar, 2).ok());
  EXPECT_EQ(scalar, -5);
  EXPECT_EQ((*reader)->Find("d"), nullptr);
}

TEST(SafetensorsTest, WriterRefusesWhatAReaderWould) {
  FileSystem* const files = PosixFileSystem();
  const auto status = [&](const std::vector<SafetensorsDeclaration>& tensors) {
    return SafetensorsWriter::Create(files, TestPath(), tensors).status();
  };
  ExpectRefused(status({{"a", "F31", {1}}}), "\"a\"");
  ExpectRefused(status({{"a", "F32", {-1}}}), "\"a\"");
  ExpectRefused(status({{"a", "F32", {int64_t{1} << 32, int64_t{1} << 32}}}), "\"a\"");
  ExpectRefused(status({{"a", "F32", {1}}, {"a", "F32", {1}}}), "twice");
  auto writer = SafetensorsWriter::Create(files, TestPath(), {{"a", "F32", {2}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append("1234", 4).ok());
  EXPECT_EQ((*writer)->Finish().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SafetensorsTest, AcceptsEveryDTypeOfTheFormat) {
  // With the bits of an element.
  constexpr std::pair<const char*, int64_t> kDTypes[] = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (const auto& [dtype, bits] : kDTypes) {
    SCOPED_TRACE(dtype);
    auto writer = SafetensorsWriter::Create(PosixFileSystem(), TestPath(), {{"a", dtype, {2, 4}}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->data_bytes(), bits) << "eight elements";
    const std::string data((*writer)->data_bytes(), 'x');
    ASSERT_TRUE((*writer)->Append(data.data(), (*writer)->data_bytes()).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    EXPECT_TRUE(SafetensorsReader::Open(PosixFileSystem(), TestPath()).ok());
  }
}

TEST(SafetensorsTest, AcceptsTensorsInAnyOrderAndTrailingSpaces) {
  EXPECT_TRUE(OpenHeader(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},)"
                         R"("z":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},)"
                         R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}   )",
                         5)
                  .ok());
  EXPECT_TRUE(OpenHeader("{}", 0).ok());
}

TEST(SafetensorsTest, RefusesABadHeaderLength) {
  ExpectRefused(OpenBytes(""), "too short");
  ExpectRefused(OpenBytes("1234567"), "too short");
  ExpectRefused(OpenBytes(Length(0)), "length is 0");
  ExpectRefused(OpenBytes(Length(0) + "{}"), "length is 0");
  ExpectRefused(OpenBytes(Length(~uint64_t{0}) + "{}"), "18446744073709551615");
  ExpectRefused(OpenBytes(Length(uint64_t{1} << 63) + "{}"), "9223372036854775808");
  ExpectRefused(OpenBytes(Length(100'000'001) + "{}"), "at most 100000000 are allowed");
  ExpectRefused(OpenBytes(Length(100'000'000) + "{}"), "truncated");
  ExpectRefused(OpenBytes(Length(100) + "{}"), "truncated");
}

TEST(SafetensorsTest, RefusesAHeaderThatIsNotAnObject) {
  ExpectRefused(OpenHeader("[]", 0), "begin with '{'");
  ExpectRefused(OpenHeader(" {}", 0), "begin with '{'");
  ExpectRefused(OpenHeader("{", 0), "not valid JSON");
  ExpectRefused(OpenHeader("{}{}", 0), "not valid JSON");
  ExpectRefused(OpenHeader(std::string("{}\0\0", 4), 0), "is zero");
}

TEST(SafetensorsTest, RefusesNonUtf8) {
  ExpectRefused(OpenHeader("{\"\xc3\x28\":{\"dtype\":\"U8\",\"shape\":[1],"
                           "\"data_offsets\":[0,1]}}",
                           1),
                "UTF-8");
}

TEST(SafetensorsTest, RefusesDeeplyNestedJson) {
  std::string header = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) header += "[";
  ExpectRefused(OpenHeader(header, 0), "deeper than");
}

TEST(SafetensorsTest, RefusesDuplicateKeys) {
  const std::string tensor = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  ExpectRefused(OpenHeader("{" + tensor + "," + tensor + "}", 1), "\"a\" appears twice");
  ExpectRefused(
      OpenHeader(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
      "\"dtype\" appears twice");
}

TEST(SafetensorsTest, RefusesAMalformedTensor) {
  const auto refused = [](const std::string& fields, const std::string& what) {
    SCOPED_TRACE(fields);
    const absl::Status status = OpenHeader("{\"the tensor\":" + fields + "}", 4);
    ExpectRefused(status, what);
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"the tensor\""));
  };
  refused("1", "not an object");
  refused(R"({"shape":[4],"data_offsets":[0,4]})", "no dtype");
  refused(R"({"dtype":"U8","data_offsets":[0,4]})", "no shape");
  refused(R"({"dtype":"U8","shape":[4]})", "no data_offsets");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1})", "unknown key \"x\"");
  refused(R"({"dtype":"U9","shape":[4],"data_offsets":[0,4]})", "unknown dtype \"U9\"");
  refused(R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})", "dtype is not a string");
  refused(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})", "shape is not a list");
  refused(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})", "number -4");
  refused(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})", "number 4.0");
  refused(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]})", "below 2^63");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[0]})", "two offsets");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]})", "two offsets");
  refused(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})", "end before they begin");
  refused(R"({"dtype":"U8","shape":[3],"data_offsets":[0,4]})", "takes 3 bytes");
  refused(R"({"dtype":"F4","shape":[3],"data_offsets":[0,4]})", "no integer");
}

TEST(SafetensorsTest, RefusesAShapeWhoseProductOverflows) {
  // 2^32 * 2^32 = 2^64, which wraps to 0 and would fit an empty range.
  ExpectRefused(OpenHeader(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],)"
                           R"("data_offsets":[0,0]}})",
                           0),
                "overflows");
  // The product of the elements fits, that of the bytes does not.
  ExpectRefused(OpenHeader(R"({"a":{"dtype":"F64","shape":[2305843009213693952],)"
                           R"("data_offsets":[0,0]}})",
                           0),
                "no integer");
}

TEST(SafetensorsTest, RefusesOverlapsHolesAndRangesOutsideOfTheFile) {
  const auto two = [](const char* a, const char* b, size_t data) {
    return OpenHeader(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + a +
                          R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                      data);
  };
  EXPECT_TRUE(two("[0,4]", "[4,8]", 8).ok());
  ExpectRefused(two("[0,4]", "[3,7]", 8), "overlaps");
  ExpectRefused(two("[0,4]", "[0,4]", 4), "overlaps");
  ExpectRefused(two("[0,4]", "[5,9]", 9), "hole");
  ExpectRefused(two("[1,5]", "[5,9]", 9), "hole");
  ExpectRefused(two("[0,4]", "[4,8]", 7), "truncated");
  ExpectRefused(two("[0,4]", "[4,8]", 9), "tensors cover 8");
  ExpectRefused(OpenHeader(R"({"a":{"dtype":"U8","shape":[4],)"
                           R"("data_offsets":[9223372036854775800,9223372036854775804]}})",
                           4),
                "hole");
}

TEST(SafetensorsTest, RefusesBadMetadata) {
  ExpectRefused(OpenHeader(R"({"__metadata__":1})", 0), "__metadata__");
  ExpectRefused(OpenHeader(R"({"__metadata__":{"format":1}})", 0), "\"format\"");
}

TEST(SafetensorsTest, AMissingFileIsNotFound) {
  EXPECT_EQ(SafetensorsReader::Open(PosixFileSystem(), "/nowhere.safetensors").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace megatrain
