#include "engine/base/file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace megatrain {
namespace {

// Every disk is told of so, if this is not null.
const struct statvfs* every_disk = nullptr;

}  // namespace
}  // namespace megatrain

// In place of the C library's, for this process.
extern "C" int statvfs(const char* path, struct statvfs* info) noexcept {
  if (megatrain::every_disk == nullptr) {
    using Function = int(const char*, struct statvfs*);
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "statvfs"))(path, info);
  }
  *info = *megatrain::every_disk;
  return 0;
}

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TestPath(const std::string& name) {
  const std::string directory = JoinPath(
      ::testing::TempDir(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
  EXPECT_TRUE(PosixFileSystem()->CreateDirectories(directory).ok());
  return JoinPath(directory, name);
}

TEST(FileTest, JoinsAndSplitsPaths) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(ParentDirectory("a/b/c"), "a/b");
  EXPECT_EQ(ParentDirectory("a/b/"), "a");
  EXPECT_EQ(ParentDirectory("c"), ".");
  EXPECT_EQ(ParentDirectory("/c"), "/");
  EXPECT_EQ(ParentDirectory("/"), "/");
}

TEST(FileTest, WritesInPiecesAndHashesAllBytes) {
  FileSystem* const files = PosixFileSystem();
  const std::string path = TestPath("pieces");
  std::string content;
  for (int i = 0; i < 3'000'000; ++i) content.push_back(static_cast<char>(int64_t{i} * i >> 3));
  auto writer = FileWriter::Create(files, path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  // Pieces smaller than, about, and larger than the buffer.
  size_t done = 0;
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1'000'000}, size_t{1'500'000}}) {
    ASSERT_TRUE((*writer)->Append(content.data() + done, static_cast<int64_t>(piece)).ok());
    done += piece;
  }
  ASSERT_TRUE((*writer)->Append(std::string_view(content).substr(done)).ok());
  ASSERT_TRUE((*writer)->SyncAndClose().ok());
  EXPECT_EQ((*writer)->bytes(), static_cast<int64_t>(content.size()));
  EXPECT_EQ((*writer)->Hash(), HashBytes(content));

  int64_t bytes = 0;
  const auto hash = HashFile(files, path, &bytes);
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(*hash, HashBytes(content));
  EXPECT_EQ(bytes, static_cast<int64_t>(content.size()));
  const auto read = ReadWholeFile(files, path, bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, content);
}

// Beyond what is read at a time.
TEST(FileTest, LongFilesAreHashedAndCopiedWhole) {
  FileSystem* const files = PosixFileSystem();
  const std::string path = TestPath("long"), copy = TestPath("copy");
  std::string content((size_t{4} << 20) + 5, 'x');
  content[7] = 'y';
  content.back() = 'z';
  ASSERT_TRUE(WriteFileSynced(files, path, content).ok());
  const auto hash = HashFile(files, path, nullptr);
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(*hash, HashBytes(content));
  const auto bytes = CopyFileSynced(files, path, copy);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, static_cast<int64_t>(content.size()));
  const auto read = ReadWholeFile(files, copy, *bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == content);
}

TEST(FileTest, HashIsXxh3Of128Bits) {
  // Published for the empty input.
  EXPECT_EQ(HashBytes(""), "99aa06d3014798d86001c324468d497f");
}

TEST(FileTest, RefusesFilesThatAreTooLong) {
  const std::string path = TestPath("long");
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), path, "12345").ok());
  EXPECT_EQ(ReadWholeFile(PosixFileSystem(), path, 4).status(),
            absl::OutOfRangeError(path + " has 5 bytes; at most 4 are expected of this file"));
  EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), path, 5), "12345");
}

TEST(FileTest, ReadPastTheEndIsDataLoss) {
  const std::string path = TestPath("short");
  ASSERT_TRUE(WriteFileSynced(PosixFileSystem(), path, "12345").ok());
  auto file = PosixFileSystem()->OpenForReading(path);
  ASSERT_TRUE(file.ok());
  char buffer[8];
  EXPECT_TRUE((*file)->Read(1, buffer, 4).ok());
  EXPECT_EQ(std::string(buffer, 4), "2345");
  EXPECT_EQ((*file)->Read(1, buffer, 6),
            absl::DataLossError(path + " ends at byte 5, 2 bytes too early"));
}

TEST(FileTest, NamesPathAndReasonOfFailures) {
  FileSystem* const files = PosixFileSystem();
  const absl::Status missing = files->OpenForReading("/nowhere/at/all").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot open /nowhere/at/all: No such file or directory");
  const std::string directory = ParentDirectory(TestPath("x"));
  EXPECT_EQ(files->OpenForReading(directory).status(),
            absl::InvalidArgumentError(directory + " is a directory, not a file"));
  EXPECT_EQ(files->OpenForReading("/dev/null").status(),
            absl::InvalidArgumentError("/dev/null is not a regular file"));
}

TEST(FileTest, TheCodeOfAFailureTellsItsKind) {
  const struct {
    int error;
    absl::StatusCode code;
  } cases[] = {{ENOENT, absl::StatusCode::kNotFound},
               {ENOTDIR, absl::StatusCode::kNotFound},
               {EACCES, absl::StatusCode::kPermissionDenied},
               {EPERM, absl::StatusCode::kPermissionDenied},
               {EROFS, absl::StatusCode::kPermissionDenied},
               {ENAMETOOLONG, absl::StatusCode::kInvalidArgument},
               {ELOOP, absl::StatusCode::kInvalidArgument},
               {EMFILE, absl::StatusCode::kInternal}};
  for (const auto& [error, code] : cases) {
    const std::string message = std::string("cannot open /a: ") + std::strerror(error);
    EXPECT_EQ(FileError("open", "/a", error), absl::Status(code, message));
  }
  for (const int error : {ENOSPC, EDQUOT}) {
    const std::string reason = std::string(" (") + std::strerror(error) + ")";
    EXPECT_EQ(FileError("open", "/a", error), DiskFullError("disk full: cannot open /a" + reason));
    EXPECT_EQ(FileError("write", "/a", error, 1),
              DiskFullError("disk full writing /a: 1 bytes did not fit" + reason));
  }
}

TEST(FileTest, DiskFullIsResourceExhausted) {
  EXPECT_EQ(FileError("write", "/a/b", ENOSPC, 4096),
            DiskFullError("disk full writing /a/b: 4096 bytes did not fit (No space left on "
                          "device)"));
  EXPECT_EQ(FileError("create", "/a/b", EROFS).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(FileError("write", "/a/b", EIO).code(), absl::StatusCode::kInternal);
  // The system's own full device.
  auto writer = FileWriter::Create(PosixFileSystem(), "/dev/full");
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append("x").ok());
  const absl::Status status = (*writer)->SyncAndClose();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("disk full writing /dev/full"));
  EXPECT_TRUE(IsDiskFull(status));
  EXPECT_TRUE(IsDiskFull(FileError("create", "a", EDQUOT)));
  EXPECT_FALSE(IsDiskFull(FileError("create", "a", EIO)));
  EXPECT_FALSE(IsDiskFull(absl::ResourceExhaustedError("disk full")));
  EXPECT_FALSE(IsDiskFull(absl::OkStatus()));
}

// Memory at a multiple of kDirectAlignment, and `shift` bytes more.
std::vector<char> Pages(int64_t pages, char** begin, int64_t shift = 0) {
  std::vector<char> memory(static_cast<size_t>((pages + 2) * kDirectAlignment));
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t page = kDirectAlignment;
  *begin = memory.data() + (page - address % page) + shift;
  return memory;
}

// With `shift` the memory is not aligned: the system may refuse to transfer it directly, and it
// goes through the page cache.
TEST(FileTest, BlocksInAnyOrderMakeAFileWithAnyEnd) {
  FileSystem* const files = PosixFileSystem();
  for (const int64_t shift : {0, 1}) {
    for (const int64_t rest : {0, 1, 4095}) {
      SCOPED_TRACE(::testing::Message() << "shift " << shift << ", rest " << rest);
      const std::string path = TestPath("blocks");
      ASSERT_TRUE(WriteFileSynced(files, path, std::string(100'000, 'x')).ok());
      const int64_t bytes = 3 * kDirectAlignment + rest;
      char* data = nullptr;
      const std::vector<char> memory = Pages(4, &data, shift);
      for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * i >> 4);
      auto file = files->NewBlockFile(path, bytes);
      ASSERT_TRUE(file.ok()) << file.status();
      for (const int64_t block : {2, 0, 1}) {
        const int64_t offset = block * kDirectAlignment;
        const int64_t length = block == 2 ? bytes - offset : kDirectAlignment;
        ASSERT_TRUE((*file)->Write(offset, data + offset, length).ok());
      }
      ASSERT_TRUE((*file)->Sync().ok());
      ASSERT_TRUE((*file)->Close().ok());
      const auto whole = ReadWholeFile(files, path, bytes);
      ASSERT_TRUE(whole.ok()) << whole.status();
      EXPECT_TRUE(*whole == std::string(data, static_cast<size_t>(bytes)));

      const auto blocks = files->OpenBlocksForReading(path);
      ASSERT_TRUE(blocks.ok()) << blocks.status();
      EXPECT_EQ((*blocks)->size(), bytes);
      char* read = nullptr;
      const std::vector<char> to = Pages(4, &read, shift);
      const auto got = (*blocks)->ReadUpTo(kDirectAlignment, read, 3 * kDirectAlignment);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, bytes - kDirectAlignment);
      EXPECT_TRUE(std::string(read, static_cast<size_t>(*got)) == whole->substr(kDirectAlignment));
    }
  }
}

TEST(FileTest, SeveralWriteBlocksOfOneFile) {
  FileSystem* const files = PosixFileSystem();
  const std::string path = TestPath("shared_blocks");
  EXPECT_TRUE(files->RemoveTree(path).ok());
  const int64_t bytes = 2 * kDirectAlignment + 5;
  char* data = nullptr;
  const std::vector<char> memory = Pages(3, &data, 0);
  for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * i >> 4);
  for (const int64_t block : {2, 0, 1}) {
    auto file = files->OpenBlockFile(path, bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const int64_t offset = block * kDirectAlignment;
    const int64_t length = std::min<int64_t>(bytes - offset, kDirectAlignment);
    ASSERT_TRUE((*file)->Write(offset, data + offset, length).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
  }
  EXPECT_EQ(*ReadWholeFile(files, path, bytes), std::string(data, static_cast<size_t>(bytes)));
}

TEST(FileTest, AtomicWriteReplacesAndLeavesNothingBehind) {
  FileSystem* const files = PosixFileSystem();
  const std::string path = TestPath("atomic");
  ASSERT_TRUE(AtomicWriteFile(files, path, "old").ok());
  ASSERT_TRUE(AtomicWriteFile(files, path, "new").ok());
  EXPECT_EQ(*ReadWholeFile(files, path, 100), "new");
  EXPECT_FALSE(files->FileExists(path + ".tmp"));
}

TEST(FileTest, DirectoriesAreMadeListedAndRemoved) {
  FileSystem* const files = PosixFileSystem();
  const std::string root = TestPath("tree");
  ASSERT_TRUE(files->CreateDirectories(root + "/b/c").ok());
  ASSERT_TRUE(files->CreateDirectories(root + "/b/c").ok());
  ASSERT_TRUE(WriteFileSynced(files, root + "/a", "x").ok());
  const auto copied = CopyFileSynced(files, root + "/a", root + "/b/c/d");
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(*copied, 1);
  EXPECT_THAT(*files->ListDirectory(root), ElementsAre("a", "b"));
  EXPECT_TRUE(files->IsDirectory(root + "/b"));
  EXPECT_FALSE(files->IsDirectory(root + "/a"));
  EXPECT_TRUE(files->SyncDirectory(root).ok());
  EXPECT_FALSE(files->CreateDirectories(root + "/a/under-a-file").ok());
  ASSERT_TRUE(files->RemoveTree(root).ok());
  ASSERT_TRUE(files->RemoveTree(root).ok());
  EXPECT_FALSE(files->FileExists(root));
  EXPECT_FALSE(files->ListDirectory(root).ok());
}

TEST(FileTest, TellsWhatAPathLeadsTo) {
  FileSystem* const files = PosixFileSystem();
  const std::string root = TestPath("examined");
  const std::string file = root + "/file", link = root + "/link", lost = root + "/dangling";
  ASSERT_TRUE(files->RemoveTree(root).ok());
  ASSERT_TRUE(files->CreateDirectories(root).ok());
  ASSERT_TRUE(WriteFileSynced(files, file, "12345").ok());
  ASSERT_EQ(::symlink("file", link.c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", lost.c_str()), 0);
  const timespec times[] = {{500, 0}, {1000, 0}};  // read, written
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);

  const auto of_link = files->Examine(link), of_root = files->Examine(root);
  ASSERT_TRUE(of_link.ok() && of_root.ok()) << of_link.status() << of_root.status();
  EXPECT_TRUE(of_link->is_regular && !of_link->is_directory);
  EXPECT_EQ(of_link->bytes, 5);
  EXPECT_EQ(of_link->modified, absl::FromUnixSeconds(1000));
  EXPECT_GT(of_link->changed, absl::FromUnixSeconds(1000));
  struct stat info;
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(of_link->device, info.st_dev);
  EXPECT_EQ(of_link->inode, info.st_ino);
  EXPECT_TRUE(of_root->is_directory && !of_root->is_regular);
  EXPECT_EQ(of_root->bytes, 0);

  EXPECT_TRUE(absl::IsNotFound(files->Examine(lost).status()));
  EXPECT_TRUE(files->FileExists(lost));
  EXPECT_FALSE(files->FileExists(root + "/none"));
  EXPECT_FALSE(files->IsDirectory(lost));
  EXPECT_EQ(*files->RealPath(link), *files->RealPath(root) + "/file");
  EXPECT_TRUE(absl::IsNotFound(files->RealPath(lost).status()));
  EXPECT_THAT(*files->ListDirectory(root), ElementsAre("dangling", "file", "link"));
  EXPECT_TRUE(files->CheckWritable(root + "/not/there/yet").ok());
  EXPECT_EQ(files->CheckWritable(file + "/below"),
            absl::InvalidArgumentError(file + " is not a directory"));
}

TEST(FileTest, ALockHasOneHolder) {
  FileSystem* const files = PosixFileSystem();
  const std::string path = TestPath("lock");
  auto first = files->TryLock(path);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_NE(*first, nullptr);
  const auto second = files->TryLock(path);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, nullptr);
  // Whoever removes the file does not release its lock, but the name is free.
  ASSERT_TRUE(files->RemoveFile(path).ok());
  EXPECT_NE(*files->TryLock(path), nullptr);
  first->reset();
  EXPECT_NE(*files->TryLock(path), nullptr);
  EXPECT_TRUE(absl::IsNotFound(files->TryLock(path + "/below").status()));
}

TEST(FileTest, FreeBytesOfAPathThatIsNotThereYet) {
  const auto free = PosixFileSystem()->FreeDiskBytes(::testing::TempDir() + "/no/such/directory");
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_GT(*free, 0);
}

// The blocks that a file system keeps for root are of no use to others.
TEST(FileTest, FreeBytesAreThoseThatEveryUserMayFill) {
  struct statvfs disk = {};
  disk.f_bsize = 65536;
  disk.f_frsize = 4096;  // the unit of the counts
  disk.f_blocks = 9'000'000'000;
  disk.f_bfree = 4'000'000'000;
  disk.f_bavail = 3'000'000'000;
  every_disk = &disk;
  const auto free = PosixFileSystem()->FreeDiskBytes(::testing::TempDir());
  every_disk = nullptr;
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(*free, int64_t{3'000'000'000} * 4096);
}

}  // namespace
}  // namespace megatrain
