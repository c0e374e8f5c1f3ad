#include "engine/data/records/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "tests/engine/data/records/token_bytes.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataFile Tokens(const std::string& path, const std::string& dtype = "") {
  return {path, DataFormat::kTokens, dtype};
}

std::string OpenError(const DataFile& file) {
  const auto opened = TokenFile::Open(file);
  EXPECT_FALSE(opened.ok());
  return std::string(opened.status().message());
}

constexpr char kU2[] = "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }";

TEST(TokenFileTest, ReadsNpyOfEitherWidthAndEveryVersion) {
  TestDirectory directory;
  const std::string data2 = Bytes(std::vector<uint16_t>{1, 2, 60000, 4});
  const std::string data4 = Bytes(std::vector<uint32_t>{1, 2, 60000, 70000});
  std::string version3 = Npy(kU2, data2);
  version3[6] = '\x03';
  version3.insert(10, 2, '\0');
  for (const std::string& path :
       {directory.Write("a.npy", Npy(kU2, data2)), directory.Write("b.npy", version3),
        directory.Write("c.NPY",
                        Npy("{\"shape\":(4),'fortran_order':True,'descr':'<u2'}", data2))}) {
    const auto file = TokenFile::Open(Tokens(path));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tokens(), 4);
    std::vector<int32_t> ids(3);
    ASSERT_TRUE((*file)->Read(1, 3, 60001, ids.data()).ok());
    EXPECT_THAT(ids, ElementsAre(2, 60000, 4));
    const auto scanned = (*file)->Scan(60001, nullptr);
    ASSERT_TRUE(scanned.ok()) << scanned.status();
    EXPECT_EQ(scanned->hash, HashText(ReadFileOrEmpty(path)));
    EXPECT_EQ(scanned->largest_id, 60000);
  }
  const auto wide = TokenFile::Open(Tokens(directory.Write(
      "d.npy", Npy("{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }", data4))));
  ASSERT_TRUE(wide.ok()) << wide.status();
  std::vector<int32_t> ids(4);
  ASSERT_TRUE((*wide)->Read(0, 4, 70001, ids.data()).ok());
  EXPECT_THAT(ids, ElementsAre(1, 2, 60000, 70000));
}

TEST(TokenFileTest, ReadsBin) {
  TestDirectory directory;
  const std::string path = directory.Write("a.bin", Bytes(std::vector<uint16_t>{5, 0, 6, 0}));
  EXPECT_EQ((*TokenFile::Open(Tokens(path, "uint16")))->tokens(), 4);
  const auto wide = TokenFile::Open(Tokens(path, "uint32"));
  EXPECT_EQ((*wide)->tokens(), 2);
  std::vector<int32_t> ids(2);
  ASSERT_TRUE((*wide)->Read(0, 2, 7, ids.data()).ok());
  EXPECT_THAT(ids, ElementsAre(5, 6));
}

TEST(TokenFileTest, RefusesWhatIsNoPlainArrayOfIds) {
  TestDirectory directory;
  const std::string data = Bytes(std::vector<uint16_t>{1, 2, 3, 4});
  const auto npy = [&](const std::string& dictionary) {
    return Tokens(directory.Write("x.npy", Npy(dictionary, data)));
  };
  EXPECT_THAT(OpenError(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }")),
              HasSubstr("x.npy: its elements are of numpy type '<i8'; uint16 ('<u2')"));
  EXPECT_THAT(OpenError(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }")),
              HasSubstr("numpy type '<i4'"));
  EXPECT_THAT(OpenError(npy("{'descr': '>u2', 'fortran_order': False, 'shape': (4,), }")),
              HasSubstr("numpy type '>u2'"));
  EXPECT_THAT(OpenError(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2, 2), }")),
              HasSubstr("has 2 dimensions; one is needed"));
  EXPECT_THAT(OpenError(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }")),
              HasSubstr("claims 5 elements of 2 bytes, but 8 bytes follow it: it is cut short"));
  EXPECT_THAT(OpenError(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }")),
              HasSubstr("claims 3 elements of 2 bytes, but 8 bytes follow it"));
  EXPECT_THAT(OpenError(npy("{'descr': '<u2', 'fortran_order': False, "
                            "'shape': (9223372036854775812,), }")),
              HasSubstr("not one of a plain array"));
  EXPECT_THAT(OpenError(npy("{'descr': '<u2', 'fortran_order': False, "
                            "'shape': (4611686018427387908,), }")),
              HasSubstr("claims 4611686018427387908 elements"));
  EXPECT_THAT(OpenError(npy("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (4,), }")),
              HasSubstr("not one of a plain array"));
  EXPECT_THAT(OpenError(npy("{'descr': '<u2'}")), HasSubstr("not one of a plain array"));
  EXPECT_THAT(OpenError(Tokens(directory.Write("y.npy", "not numpy's"))),
              HasSubstr("y.npy: is not a .npy file"));
  EXPECT_THAT(OpenError(Tokens(
                  directory.Write("v.npy", std::string("\x93NUMPY\x09\x00\x00\x00\x00\x00", 12)))),
              HasSubstr(".npy version 9; 1 to 3 are known"));
  EXPECT_THAT(
      OpenError(Tokens(directory.Write("h.npy", std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)))),
      HasSubstr("its .npy header claims 65535 bytes of a file of 12"));
  DataFile contradicted = npy(kU2);
  contradicted.dtype = "uint32";
  EXPECT_THAT(OpenError(contradicted), HasSubstr("dtype uint32 is given, but the file says '<u2'"));

  const std::string odd = directory.Write("z.bin", "12345");
  EXPECT_THAT(OpenError(Tokens(odd)), HasSubstr("z.bin: a .bin file says nothing of its type"));
  EXPECT_THAT(OpenError(Tokens(odd, "uint16")), HasSubstr("no whole number of uint16 elements"));
  EXPECT_THAT(OpenError(Tokens(odd, "int32")), HasSubstr("dtype int32 is not accepted"));
  EXPECT_THAT(OpenError(Tokens(directory.Write("t.txt", "1"))), HasSubstr(".npy and .bin"));
  EXPECT_THAT(OpenError(Tokens(directory / "none.npy")), HasSubstr("none.npy: No such file"));
  EXPECT_THAT(OpenError(Tokens(directory.path())), HasSubstr("is a directory"));
}

TEST(TokenFileTest, RefusesAHeaderThatIsNotWholeOrNotExact) {
  TestDirectory directory;
  const std::string data = Bytes(std::vector<uint16_t>{1, 2, 3, 4});
  const auto error = [&](const std::string& dictionary) {
    return OpenError(Tokens(directory.Write("x.npy", Npy(dictionary, data))));
  };
  const std::string descr = "'descr': '<u2', ", order = "'fortran_order': False, ",
                    shape = "'shape': (4,), ";
  for (const std::string& members :
       {order + shape, descr + shape, descr + order, descr + descr + order + shape,
        descr + order + order + shape, descr + order + shape + shape,
        descr + order + shape + "'more': 'x', "}) {
    EXPECT_THAT(error("{" + members + "}"), HasSubstr("not one of a plain array")) << members;
  }
  EXPECT_THAT(error("{" + descr + order + shape + "} x"), HasSubstr("not one of a plain array"));
  EXPECT_THAT(error("{" + descr + order + shape), HasSubstr("not one of a plain array"));
  // A byte too many, which is no whole element.
  EXPECT_THAT(OpenError(Tokens(directory.Write("y.npy", Npy(kU2, data + "x")))),
              HasSubstr("claims 4 elements of 2 bytes, but 9 bytes follow it"));
}

TEST(TokenFileTest, NamesTheElementOutsideTheVocabulary) {
  TestDirectory directory;
  std::vector<uint32_t> ids(600000, 7);  // more than one chunk of the scan
  ids[500001] = 32000;
  const std::string path = directory.Write("a.bin", Bytes(ids));
  const auto file = TokenFile::Open(Tokens(path, "uint32"));
  const auto scanned = (*file)->Scan(32001, nullptr);
  ASSERT_TRUE(scanned.ok()) << scanned.status();
  EXPECT_EQ(scanned->largest_id, 32000) << "chunks with smaller ones follow";
  EXPECT_THAT(std::string((*file)->Scan(32000, nullptr).status().message()),
              HasSubstr("a.bin: element 500001 (from 0; at byte 2000004) is token 32000, which is "
                        "not below the model's vocabulary of 32000"));
  std::vector<int32_t> out(2);
  EXPECT_FALSE((*file)->Read(500000, 2, 32000, out.data()).ok());
}

// From version 2 on the length of the header has four bytes.
TEST(TokenFileTest, AHeaderMayBeLongerThanTheFirstVersionCouldSay) {
  TestDirectory directory;
  const auto npy2 = [](uint32_t header_bytes, const std::string& rest) {
    return std::string("\x93NUMPY\x02\x00", 8) + Bytes(std::vector<uint32_t>{header_bytes}) + rest;
  };
  const std::string header = kU2 + std::string(70000, ' ') + "\n";
  const std::string path =
      directory.Write("a.npy", npy2(static_cast<uint32_t>(header.size()),
                                    header + Bytes(std::vector<uint16_t>{1, 2, 60000, 4})));
  const auto file = TokenFile::Open(Tokens(path));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<int32_t> ids(4);
  ASSERT_TRUE((*file)->Read(0, 4, 60001, ids.data()).ok());
  EXPECT_THAT(ids, ElementsAre(1, 2, 60000, 4));
  for (const uint32_t claimed : {uint32_t{1} << 16, uint32_t{1} << 24}) {
    EXPECT_THAT(OpenError(Tokens(directory.Write("b.npy", npy2(claimed, header.substr(0, 100))))),
                HasSubstr("claims " + std::to_string(claimed) + " bytes of a file of 112"));
  }
}

TEST(TokenFileTest, AnArrayMayBeEmpty) {
  TestDirectory directory;
  const std::string npy = directory.Write(
      "a.npy", Npy("{'descr': '<u2', 'fortran_order': False, 'shape': (0,), }", ""));
  for (const DataFile& data : {Tokens(npy), Tokens(directory.Write("b.bin", ""), "uint32")}) {
    const auto file = TokenFile::Open(data);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tokens(), 0);
    const auto scanned = (*file)->Scan(1, nullptr);
    ASSERT_TRUE(scanned.ok()) << scanned.status();
    EXPECT_EQ(scanned->largest_id, -1);
    EXPECT_EQ(scanned->hash, HashText(ReadFileOrEmpty(data.path)));
  }
}

TEST(TokenFileTest, AnIdIsNamedWithItsPlaceBehindTheHeader) {
  TestDirectory directory;
  const std::string content = Npy(kU2, Bytes(std::vector<uint16_t>{1, 2, 3, 400}));
  const auto file = TokenFile::Open(Tokens(directory.Write("a.npy", content)));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string expected =
      "a.npy: element 3 (from 0; at byte " + std::to_string(content.size() - 2) + ") is token 400,";
  EXPECT_THAT(std::string((*file)->Scan(400, nullptr).status().message()), HasSubstr(expected));
  std::vector<int32_t> ids(2);
  EXPECT_THAT(std::string((*file)->Read(2, 2, 400, ids.data()).message()), HasSubstr(expected));
  EXPECT_TRUE((*file)->Read(2, 2, 401, ids.data()).ok());
}

// As a signed number it would be below every vocabulary.
TEST(TokenFileTest, TheGreatestNumberIsNoId) {
  TestDirectory directory;
  const std::string path = directory.Write("a.bin", Bytes(std::vector<uint32_t>{1, 4294967295}));
  const auto file = TokenFile::Open(Tokens(path, "uint32"));
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status scanned = (*file)->Scan(32000, nullptr).status();
  EXPECT_THAT(std::string(scanned.message()), HasSubstr("element 1 (from 0; at byte 4) is token "
                                                        "4294967295"));
  std::vector<int32_t> ids(2);
  const absl::Status read = (*file)->Read(0, 2, 32000, ids.data());
  EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument) << read;
}

TEST(TokenFileTest, ScanningTellsItsProgressAndIsAbandonedWhenAsked) {
  TestDirectory directory;
  const std::string path = directory.Write("a.bin", Bytes(std::vector<uint16_t>(1500000, 1)));
  const auto file = TokenFile::Open(Tokens(path, "uint16"));
  ASSERT_TRUE(file.ok()) << file.status();
  int64_t done = 0;
  ASSERT_TRUE((*file)
                  ->Scan(2,
                         [&](int64_t bytes) {
                           done += bytes;
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_EQ(done, 3000000);
  const auto abandoned = (*file)->Scan(2, [](int64_t) { return absl::CancelledError("stop"); });
  EXPECT_EQ(abandoned.status().code(), absl::StatusCode::kCancelled);
}

// Else the progress of a job whose data are such files does not come to its end.
TEST(TokenFileTest, TheProgressOfAnArrayCountsItsHeader) {
  TestDirectory directory;
  const std::string content = Npy(kU2, Bytes(std::vector<uint16_t>{1, 2, 3, 4}));
  const auto file = TokenFile::Open(Tokens(directory.Write("a.npy", content)));
  ASSERT_TRUE(file.ok()) << file.status();
  int64_t done = 0;
  const auto scanned = (*file)->Scan(5, [&](int64_t bytes) {
    done += bytes;
    return absl::OkStatus();
  });
  ASSERT_TRUE(scanned.ok()) << scanned.status();
  EXPECT_EQ(done, std::ssize(content));
}

TEST(TokenFileTest, AFileThatGrowsWhileItIsScannedIsRefused) {
  TestDirectory directory;
  const std::string path = directory.Write("a.bin", Bytes(std::vector<uint16_t>(1000, 1)));
  const auto file = TokenFile::Open(Tokens(path, "uint16"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 2002);
  EXPECT_EQ((*file)->Scan(10, nullptr).status().code(), absl::StatusCode::kDataLoss);
}

TEST(TokenFileTest, AFileThatShrinksIsAnErrorNotASignal) {
  TestDirectory directory;
  const std::string path = directory.Write("a.bin", Bytes(std::vector<uint16_t>(1000, 1)));
  const auto file = TokenFile::Open(Tokens(path, "uint16"));
  std::filesystem::resize_file(path, 100);
  std::vector<int32_t> out(1000);
  EXPECT_EQ((*file)->Read(0, 1000, 10, out.data()).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*file)->Scan(10, nullptr).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace megatrain
