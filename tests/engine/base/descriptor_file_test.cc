// Files and locks whose system calls fail, are interrupted, or move less than they were asked to.
#include "engine/base/descriptor_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

// What becomes of the system calls below while it lives. Without one they go through.
struct Script {
  Script() { current = this; }
  ~Script() { current = nullptr; }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  // The names of the calls that were made, in their order, each run of equal ones once.
  std::vector<std::string> Made() const {
    std::vector<std::string> runs = made;
    runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
    return runs;
  }
  int64_t Count(const std::string& name) const {
    return std::count(made.begin(), made.end(), name);
  }

  // By name: the errors of the next calls. 0 lets a call through.
  std::map<std::string, std::deque<int>> errors;
  size_t bytes_max = std::numeric_limits<size_t>::max();  // that one call moves
  bool refuses_direct = false;                            // EINVAL for transfers with O_DIRECT
  std::function<void()> before_flock;                     // called once
  std::vector<std::string> made;
  int64_t reserved = -1;  // the bytes that the last fallocate was for

  static inline Script* current = nullptr;
};

// Counts a call. Returns true, with errno, if it is to fail.
bool Fails(const std::string& name) {
  if (Script::current == nullptr) return false;
  Script::current->made.push_back(name);
  std::deque<int>& errors = Script::current->errors[name];
  if (errors.empty()) return false;
  const int error = errors.front();
  errors.pop_front();
  errno = error;
  return error != 0;
}

bool IsRefused(int fd) {
  if (Script::current == nullptr || !Script::current->refuses_direct) return false;
  if ((::fcntl(fd, F_GETFL) & O_DIRECT) == 0) return false;
  errno = EINVAL;
  return true;
}

size_t Least(size_t bytes) {
  return Script::current == nullptr ? bytes : std::min(bytes, Script::current->bytes_max);
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace megatrain

// In place of the C library's, for this process.
extern "C" {
ssize_t write(int fd, const void* data, size_t bytes) {
  if (megatrain::Fails("write")) return -1;
  using Write = ssize_t(int, const void*, size_t);
  return megatrain::Real<Write>("write")(fd, data, megatrain::Least(bytes));
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (megatrain::Fails("pwrite") || megatrain::IsRefused(fd)) return -1;
  using Write = ssize_t(int, const void*, size_t, off_t);
  return megatrain::Real<Write>("pwrite")(fd, data, megatrain::Least(bytes), offset);
}
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  if (megatrain::Fails("pread") || megatrain::IsRefused(fd)) return -1;
  using Read = ssize_t(int, void*, size_t, off_t);
  return megatrain::Real<Read>("pread")(fd, data, megatrain::Least(bytes), offset);
}
int fsync(int fd) {
  if (megatrain::Fails("fsync")) return -1;
  return megatrain::Real<int(int)>("fsync")(fd);
}
int close(int fd) {  // which closes even if it fails
  const int result = megatrain::Real<int(int)>("close")(fd);
  return megatrain::Fails("close") ? -1 : result;
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (megatrain::Script::current != nullptr) megatrain::Script::current->reserved = bytes;
  if (megatrain::Fails("fallocate")) return -1;
  return megatrain::Real<int(int, int, off_t, off_t)>("fallocate")(fd, mode, offset, bytes);
}
int flock(int fd, int operation) noexcept {
  if (megatrain::Script::current != nullptr) {
    const auto before = std::exchange(megatrain::Script::current->before_flock, nullptr);
    if (before) before();
  }
  if (megatrain::Fails("flock")) return -1;
  return megatrain::Real<int(int, int)>("flock")(fd, operation);
}
}  // extern "C"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DescriptorFileTest : public testing::Test {
 protected:
  DescriptorFileTest() {
    for (size_t i = 0; i < sizeof(block_); ++i) block_[i] = static_cast<char>(i * i >> 4);
  }
  std::string Content(const std::string& path) const {
    const auto content = ReadWholeFile(files_, path, int64_t{1} << 20);
    return content.ok() ? *content : std::string(content.status().message());
  }
  std::string Block(int64_t bytes) const { return std::string(block_, static_cast<size_t>(bytes)); }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory directory_;
  const std::string path_ = directory_ / "file";
  alignas(kDirectAlignment) char block_[3 * kDirectAlignment];
};

TEST_F(DescriptorFileTest, AnAppendGoesOnAfterAnInterruptionAndAfterAPart) {
  {
    Script script;
    script.bytes_max = 3;
    script.errors["write"] = {0, EINTR};
    const auto file = files_->NewWritableFile(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("0123456789", 10).ok());
    ASSERT_TRUE((*file)->Append("ab", 2).ok());
    EXPECT_EQ(script.Count("write"), 6);
  }
  EXPECT_EQ(Content(path_), "0123456789ab");
}

TEST_F(DescriptorFileTest, ABlockGoesOnAfterAnInterruptionAndAfterAPart) {
  constexpr int64_t kBytes = 2 * kDirectAlignment + 5;
  {
    Script script;
    script.bytes_max = kDirectAlignment;
    script.errors["fallocate"] = {EINTR};
    script.errors["pwrite"] = {0, EINTR};
    const auto file = files_->NewBlockFile(path_, kBytes);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(script.Count("fallocate"), 2);
    ASSERT_TRUE((*file)->Write(0, block_, kBytes).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
  }
  EXPECT_TRUE(Content(path_) == Block(kBytes));
}

TEST_F(DescriptorFileTest, AReadGoesOnAfterAnInterruptionAndAfterAPart) {
  ASSERT_TRUE(WriteFileSynced(files_, path_, "0123456789").ok());
  const auto file = files_->OpenForReading(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  Script script;
  script.bytes_max = 3;
  script.errors["pread"] = {0, EINTR};
  char read[8];
  EXPECT_TRUE((*file)->Read(1, read, 8).ok());
  EXPECT_EQ(std::string(read, 8), "12345678");
  // The file has become shorter since it was opened.
  ASSERT_EQ(::truncate(path_.c_str(), 4), 0);
  const auto got = (*file)->ReadUpTo(0, read, 8);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, 4);
  EXPECT_TRUE(absl::IsDataLoss((*file)->Read(0, read, 8)));
}

TEST_F(DescriptorFileTest, ASyncReachesTheDiskBehindEverythingWritten) {
  {
    Script script;
    ASSERT_TRUE(WriteFileSynced(files_, path_, "text").ok());
    EXPECT_THAT(script.Made(), ElementsAre("write", "fsync", "close"));
  }
  {
    Script script;
    constexpr int64_t kBytes = kDirectAlignment + 5;  // the last five are written by Sync
    const auto file = files_->NewBlockFile(path_, kBytes);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Write(0, block_, kBytes).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
    EXPECT_THAT(script.Made(), ElementsAre("fallocate", "pwrite", "fsync", "close"));
  }
  Script script;
  ASSERT_TRUE(files_->SyncDirectory(directory_.path()).ok());
  EXPECT_THAT(script.Made(), ElementsAre("fsync", "close"));
}

TEST_F(DescriptorFileTest, AnInterruptedSyncIsRepeated) {
  Script script;
  script.errors["fsync"] = {EINTR, EINTR};
  EXPECT_TRUE(WriteFileSynced(files_, path_, "text").ok());
  EXPECT_EQ(script.Count("fsync"), 3);
  script.errors["fsync"] = {EINTR, EINTR};
  const auto file = files_->NewBlockFile(path_, kDirectAlignment);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(script.Count("fsync"), 6);
}

// One call after the other fails while a file is written.
TEST_F(DescriptorFileTest, AFailureOfAWriteASyncOrACloseIsTold) {
  for (const char* const name : {"write", "fsync", "close"}) {
    Script script;
    script.errors[name] = {EIO};
    const absl::Status status = WriteFileSynced(files_, path_, "text");
    EXPECT_TRUE(absl::IsInternal(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_)) << name;
  }
  for (const char* const name : {"pwrite", "fsync", "close"}) {
    Script script;
    script.errors[name] = {EIO};
    const auto file = files_->NewBlockFile(path_, kDirectAlignment);
    ASSERT_TRUE(file.ok()) << file.status();
    absl::Status status = (*file)->Write(0, block_, kDirectAlignment);
    EXPECT_EQ(status.ok(), name != std::string("pwrite"));
    if (status.ok()) {
      status = (*file)->Sync();
      EXPECT_EQ(status.ok(), name != std::string("fsync"));
    }
    if (status.ok()) status = (*file)->Close();
    EXPECT_TRUE(absl::IsInternal(status)) << name << ": " << status;
  }
  ASSERT_TRUE(WriteFileSynced(files_, path_, "text").ok());
  const auto file = files_->OpenForReading(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  Script script;
  script.errors["pread"] = {EIO};
  char read[4];
  EXPECT_TRUE(absl::IsInternal((*file)->Read(0, read, 4)));
  // A descriptor is closed even if that was interrupted.
  script.errors["close"] = {EINTR};
  EXPECT_TRUE(WriteFileSynced(files_, path_, "text").ok());
}

TEST_F(DescriptorFileTest, AFullDiskIsTold) {
  Script script;
  script.errors["write"] = {0, ENOSPC};
  script.bytes_max = 3;
  const auto file = files_->NewWritableFile(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status status = (*file)->Append("0123456789", 10);
  EXPECT_TRUE(IsDiskFull(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("10 bytes did not fit"));
  // The last bytes of a file, which are less than a page, may be written at its Sync only.
  const auto blocks = files_->NewBlockFile(path_, 5);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  script.errors["pwrite"] = {EDQUOT};
  absl::Status written = (*blocks)->Write(0, block_, 5);
  if (written.ok()) written = (*blocks)->Sync();
  EXPECT_TRUE(IsDiskFull(written)) << written;
}

TEST_F(DescriptorFileTest, RoomIsReservedWhereTheFileSystemCanDoThat) {
  Script script;
  for (const int error : {ENOSPC, EDQUOT}) {
    script.errors["fallocate"] = {error};
    EXPECT_TRUE(IsDiskFull(files_->NewBlockFile(path_, 12345).status()));
    EXPECT_EQ(std::exchange(script.reserved, -1), 12345);
    script.errors["fallocate"] = {error};
    EXPECT_TRUE(IsDiskFull(files_->OpenBlockFile(path_, 12345).status()));
    EXPECT_EQ(std::exchange(script.reserved, -1), 12345);
  }
  script.errors["fallocate"] = {EOPNOTSUPP};
  EXPECT_TRUE(files_->NewBlockFile(path_, 12345).ok());
  script.made.clear();
  EXPECT_TRUE(files_->NewBlockFile(path_, 0).ok()) << "of which the kernel would not hear";
  EXPECT_EQ(script.Count("fallocate"), 0);
}

TEST_F(DescriptorFileTest, WhatRefusesDirectTransfersGoesThroughThePageCache) {
  Script script;
  script.refuses_direct = true;
  const auto file = files_->NewBlockFile(path_, sizeof(block_));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const int64_t offset : {2 * kDirectAlignment, int64_t{0}, kDirectAlignment}) {
    ASSERT_TRUE((*file)->Write(offset, block_ + offset, kDirectAlignment).ok());
  }
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_FALSE((*file)->direct());
  const auto reader = files_->OpenBlocksForReading(path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  alignas(kDirectAlignment) static char read[sizeof(block_)];
  ASSERT_TRUE((*reader)->Read(0, read, sizeof(read)).ok());
  EXPECT_EQ(std::memcmp(read, block_, sizeof(read)), 0);
}

TEST_F(DescriptorFileTest, ADirectoryThatCannotBeSyncedIsNoError) {
  Script script;
  script.errors["fsync"] = {EINVAL, EIO};
  EXPECT_TRUE(files_->SyncDirectory(directory_.path()).ok());
  EXPECT_TRUE(absl::IsInternal(files_->SyncDirectory(directory_.path())));
}

// An open of a pipe that nobody writes would wait for ever.
TEST_F(DescriptorFileTest, APipeIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const absl::Status refused = absl::InvalidArgumentError(path_ + " is not a regular file");
  EXPECT_EQ(files_->OpenForReading(path_).status(), refused);
  EXPECT_EQ(files_->OpenBlocksForReading(path_).status(), refused);
}

TEST_F(DescriptorFileTest, WhatIsRefusedOrDoneWithIsClosed) {
  const auto next = [] { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get(); };
  const std::string pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto held = files_->TryLock(path_);
  ASSERT_TRUE(held.ok() && *held != nullptr) << held.status();
  const int before = next();
  EXPECT_EQ(*files_->TryLock(path_), nullptr);
  EXPECT_EQ(next(), before) << "a lock that another one holds";
  EXPECT_NE(*files_->TryLock(directory_ / "other"), nullptr);
  EXPECT_EQ(next(), before) << "a lock that was released";
  EXPECT_FALSE(files_->OpenForReading(pipe).ok());
  EXPECT_FALSE(files_->OpenForReading(directory_.path()).ok());
  EXPECT_EQ(next(), before) << "what is no file";
  EXPECT_TRUE(files_->ListDirectory(directory_.path()).ok());
  EXPECT_TRUE(files_->SyncDirectory(directory_.path()).ok());
  EXPECT_EQ(next(), before) << "a directory";
  EXPECT_TRUE(files_->NewWritableFile(directory_ / "written").ok());
  EXPECT_TRUE(files_->NewBlockFile(directory_ / "written", 5).ok());
  EXPECT_TRUE(files_->OpenForReading(directory_ / "written").ok());
  EXPECT_EQ(next(), before) << "a file that was given up";
  Script script;
  script.errors["fallocate"] = {ENOSPC};
  EXPECT_FALSE(files_->NewBlockFile(directory_ / "written", 5).ok());
  EXPECT_EQ(next(), before) << "a file without room";
}

// The holder before may remove the file between the open and the lock of the next one.
TEST_F(DescriptorFileTest, ALockIsThatOfTheFileWhichHasTheName) {
  Script script;
  script.before_flock = [this] { ASSERT_EQ(::unlink(path_.c_str()), 0); };
  const auto lock = files_->TryLock(path_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  ASSERT_NE(*lock, nullptr);
  EXPECT_EQ(script.Count("flock"), 2);
  EXPECT_EQ(*files_->TryLock(path_), nullptr);
}

TEST_F(DescriptorFileTest, WithoutLocksInTheFileSystemNothingIsLocked) {
  Script script;
  script.errors["flock"] = {EINTR, 0, ENOLCK};
  const auto lock = files_->TryLock(path_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_NE(*lock, nullptr);
  EXPECT_EQ(script.Count("flock"), 2) << "an interrupted one is repeated";
  const auto other = files_->TryLock(path_);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(*other, nullptr);
}

}  // namespace
}  // namespace megatrain
