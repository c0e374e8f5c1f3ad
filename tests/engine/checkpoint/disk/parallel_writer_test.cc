#include "engine/checkpoint/disk/parallel_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/disk/transfer.h"
#include "tests/fault/fault_injection_file_system.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using Fault = FaultInjectionFileSystem::Fault;
using Loss = FaultInjectionFileSystem::Loss;

std::string RandomBytes(int64_t bytes, std::mt19937_64& random) {
  std::string content(static_cast<size_t>((bytes + 7) / 8 * 8), '\0');
  for (size_t i = 0; i < content.size(); i += 8) {
    const uint64_t bits = random();
    std::memcpy(content.data() + i, &bits, 8);
  }
  content.resize(static_cast<size_t>(bytes));
  return content;
}

// The content as pieces of random sizes, some of them empty.
std::vector<FilePiece> Cut(std::string& content, std::mt19937_64& random) {
  std::vector<FilePiece> pieces;
  const int64_t size = static_cast<int64_t>(content.size());
  for (int64_t offset = 0; offset < size;) {
    const int64_t wanted = static_cast<int64_t>(random() % (uint64_t{3} << 20));
    const int64_t bytes = std::min(wanted, size - offset);
    pieces.push_back({offset, content.data() + offset, bytes});
    offset += bytes;
    if (random() % 4 == 0) pieces.push_back({offset, nullptr, 0});
  }
  return pieces;
}

TEST(ParallelWriterTest, WritesAndReadsFilesOfAnySize) {
  std::mt19937_64 random(1);
  const TestDirectory directory;
  FileSystem* const files = PosixFileSystem();
  constexpr int64_t kBlock = kTransferBlockBytes;
  std::vector<int64_t> sizes = {
      0, 1, 4095, 4096, 4097, kBlock, kBlock + 1, 3 * kBlock - 7, 9 * kBlock + 4096};
  for (int i = 0; i < 5; ++i) sizes.push_back(static_cast<int64_t>(random() % (4 * kBlock)));
  std::vector<std::string> contents, hashes;
  for (const int64_t size : sizes) contents.push_back(RandomBytes(size, random));
  ParallelWriter writer(files);
  for (size_t i = 0; i < sizes.size(); i += 2) {
    std::string first = contents[i], second = contents[i + 1];
    const auto written =
        writer.Write({{absl::StrCat(directory.path(), "/", i), Cut(first, random)},
                      {absl::StrCat(directory.path(), "/", i + 1), Cut(second, random)}});
    ASSERT_TRUE(written.ok()) << written.status();
    hashes.insert(hashes.end(), written->begin(), written->end());
    // The memory is not needed any more.
    std::fill(first.begin(), first.end(), '!');
    std::fill(second.begin(), second.end(), '!');
  }
  ASSERT_TRUE(writer.Finish().ok());
  for (size_t i = 0; i < sizes.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(sizes[i], " bytes"));
    const std::string path = absl::StrCat(directory.path(), "/", i);
    EXPECT_EQ(hashes[i], HashBytes(contents[i]));
    const auto whole = ReadWholeFile(files, path, sizes[i]);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_TRUE(*whole == contents[i]);
    // And back to pieces, of which one has no place.
    std::string read(contents[i].size(), '\0');
    std::vector<FilePiece> pieces = Cut(read, random);
    std::string expected = contents[i];
    if (!pieces.empty()) {
      FilePiece& skipped = pieces[random() % pieces.size()];
      skipped.data = nullptr;
      expected.replace(skipped.offset, skipped.bytes, skipped.bytes, '\0');
    }
    const auto file = files->OpenBlocksForReading(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status copied =
        ReadInBlocks(**file, [&](int64_t offset, const char* block, int64_t bytes) {
          CopyToPieces(block, offset, bytes, pieces);
          return absl::OkStatus();
        });
    EXPECT_TRUE(copied.ok()) << copied;
    EXPECT_TRUE(read == expected);
  }
}

// Files that Finish has seen are on the disk, whatever fails; a failure is told.
TEST(ParallelWriterTest, FailsAtEveryOperation) {
  std::mt19937_64 random(7);
  std::string large = RandomBytes(2 * kTransferBlockBytes + 100, random);
  std::string small = RandomBytes(100, random);
  const auto as_file = [&random](const std::string& path, std::string& content) {
    return ParallelWriter::FileToWrite{path, Cut(content, random)};
  };
  for (const Fault fault :
       {Fault::kNoSpace, Fault::kIoError, Fault::kShortWrite, Fault::kPowerCut}) {
    bool reached_end = false;
    for (int64_t n = 0; !reached_end; ++n) {
      SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(fault), ", operation ", n));
      FaultInjectionFileSystem files;
      ASSERT_TRUE(files.CreateDirectories("/d").ok());
      files.SyncAll();
      files.FailAfter(n, fault);
      absl::Status status;
      {
        ParallelWriter writer(&files);
        status.Update(writer.Write({as_file("/d/0", large), as_file("/d/1", small)}).status());
        status.Update(writer.Write({as_file("/d/2", small)}).status());
        status.Update(writer.Finish());
        EXPECT_EQ(writer.Finish().ok(), status.ok()) << "an error stays";
      }
      reached_end = !files.fault_happened();
      ASSERT_EQ(status.ok(), reached_end) << status;
      if (!status.ok()) {
        const bool no_space = fault == Fault::kNoSpace || fault == Fault::kShortWrite;
        EXPECT_EQ(IsDiskFull(status), no_space) << status;
        continue;
      }
      files.Restart(Loss::kData);
      EXPECT_TRUE(*files.MutableContent("/d/0") == large);
      EXPECT_TRUE(*files.MutableContent("/d/1") == small);
      EXPECT_TRUE(*files.MutableContent("/d/2") == small);
    }
  }
}

TEST(ParallelWriterTest, AFullDiskIsMetBeforeAnythingIsWritten) {
  FaultInjectionFileSystem files;
  files.set_capacity_bytes(1000);
  std::mt19937_64 random(7);
  std::string content = RandomBytes(1001, random);
  ParallelWriter writer(&files);
  const auto written = writer.Write({{"/a", Cut(content, random)}});
  EXPECT_TRUE(IsDiskFull(written.status())) << written.status();
  EXPECT_TRUE(IsDiskFull(writer.Finish()));
  EXPECT_EQ(files.operations(), 1);
}

}  // namespace
}  // namespace megatrain
