// Trees that are deep, wide, or changed while they are walked.
#include "engine/base/directory_tree.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "engine/base/file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

// Called before each call below that goes to the kernel with a name, for a test that changes what
// has the name between two of them.
std::function<void()> before_call;

template <typename Function>
Function* SystemCall(const char* name) {
  if (before_call) before_call();
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace
}  // namespace megatrain

// In place of the C library's, for this process.
extern "C" {
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = megatrain::ModeOf(flags, arguments);
  va_end(arguments);
  return megatrain::SystemCall<int(const char*, int, ...)>("open")(path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = megatrain::ModeOf(flags, arguments);
  va_end(arguments);
  return megatrain::SystemCall<int(int, const char*, int, ...)>("openat")(directory, path, flags,
                                                                          mode);
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  return megatrain::SystemCall<int(int, const char*, int)>("unlinkat")(directory, path, flags);
}
int unlink(const char* path) noexcept {
  return megatrain::SystemCall<int(const char*)>("unlink")(path);
}
int rmdir(const char* path) noexcept {
  return megatrain::SystemCall<int(const char*)>("rmdir")(path);
}
int lstat(const char* path, struct stat* info) noexcept {
  return megatrain::SystemCall<int(const char*, struct stat*)>("lstat")(path, info);
}
int fstatat(int directory, const char* path, struct stat* info, int flags) noexcept {
  return megatrain::SystemCall<int(int, const char*, struct stat*, int)>("fstatat")(directory, path,
                                                                                    info, flags);
}
}  // extern "C"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

constexpr int kDeep = 20000;  // levels: a path to the last is ten times what the kernel takes

class DirectoryTreeTest : public ::testing::Test {
 protected:
  DirectoryTreeTest() {
    fs::create_directory(outside_);
    Write(outside_ + "/kept", 1000);
  }
  ~DirectoryTreeTest() override { files_->RemoveTree(directory_).IgnoreError(); }

  static void Write(const std::string& path, size_t bytes) {
    std::ofstream(path) << std::string(bytes, 'x');
  }
  // `levels` directories below each other, in each of the first `furnished` a file of one byte,
  // another directory that has one, and a link that leads outside.
  void MakeTree(const std::string& path, int levels, int furnished = 1000) const {
    ::mkdir(path.c_str(), 0755);
    Descriptor at = OpenDirectory(AT_FDCWD, path.c_str());
    for (int level = 0;; ++level) {
      ASSERT_TRUE(at.is_open()) << level;
      if (level < furnished) {
        MakeFile(at.get(), "file");
        ASSERT_EQ(::mkdirat(at.get(), "branch", 0755), 0);
        MakeFile(at.get(), "branch/file");
        ASSERT_EQ(::symlinkat(outside_.c_str(), at.get(), "link"), 0);
      }
      if (level == levels) return;
      ASSERT_EQ(::mkdirat(at.get(), "down", 0755), 0);
      at = OpenDirectory(at.get(), "down");
    }
  }
  static Descriptor OpenDirectory(int parent, const char* name) {
    return Descriptor(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  static void MakeFile(int parent, const char* name) {
    const Descriptor file(::openat(parent, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(::write(file.get(), "x", 1), 1);
  }
  TreeSize Measure() const { return MeasureTree(OpenDirectory(AT_FDCWD, tree_.c_str())); }
  bool OutsideIsWhole() const { return fs::exists(outside_ + "/kept"); }

  // Without root's right to read and write where the mode forbids it.
  static void AsAUser(const std::function<void()>& act) {
    std::thread([&] {
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
      ASSERT_EQ(::syscall(SYS_capset, &header, none), 0);
      act();
    }).join();
  }
  static void Swap(const std::string& first, const std::string& second) {
    ::renameat2(AT_FDCWD, first.c_str(), AT_FDCWD, second.c_str(), RENAME_EXCHANGE);
  }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory own_;
  const std::string directory_ = own_.path();
  const std::string tree_ = directory_ + "/tree", outside_ = directory_ + "/outside";
};

// While it lives, the process may have but `more` descriptors open beyond those that it has. Tells
// by how many bytes the process' memory has grown at its highest.
class Frugality {
 public:
  explicit Frugality(int more) {
    ::getrlimit(RLIMIT_NOFILE, &limit_);
    const Descriptor next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit low = limit_;
    low.rlim_cur = static_cast<rlim_t>(next.get() + more);
    ::setrlimit(RLIMIT_NOFILE, &low);
    highest_ = Highest();
  }
  ~Frugality() { ::setrlimit(RLIMIT_NOFILE, &limit_); }
  int64_t GrownBytes() const { return Highest() - highest_; }

 private:
  static int64_t Highest() {
    rusage usage;
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
  }
  rlimit limit_;
  int64_t highest_ = 0;
};

TEST_F(DirectoryTreeTest, TreesOfAnyDepthAreRemoved) {
  for (const int levels : {0, 1, 2, 31, 32, 33, 63, 64, 65}) {
    MakeTree(tree_, levels);
    const absl::Status removed = files_->RemoveTree(tree_);
    EXPECT_TRUE(removed.ok()) << levels << ": " << removed;
    EXPECT_FALSE(fs::exists(tree_)) << levels;
    EXPECT_TRUE(OutsideIsWhole()) << levels;
  }
}

TEST_F(DirectoryTreeTest, ADeepTreeTakesFewDescriptorsAndLittleMemory) {
  MakeTree(tree_, kDeep, /*furnished=*/100);
  const Frugality frugality(kTreeLevelsMax + 4);
  EXPECT_FALSE(Measure().whole);
  const absl::Status removed = files_->RemoveTree(tree_);
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_FALSE(fs::exists(tree_));
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
  EXPECT_LT(frugality.GrownBytes(), 8 << 20);
#endif
}

TEST_F(DirectoryTreeTest, AWideDirectoryIsRemovedWhole) {
  fs::create_directory(tree_);
  for (int i = 0; i < 1500; ++i)
    Write(tree_ + "/a-name-so-that-a-buffer-does-not-hold-all-" + std::to_string(i), 0);
  const absl::Status removed = files_->RemoveTree(tree_);
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_FALSE(fs::exists(tree_));
}

TEST_F(DirectoryTreeTest, ALinkIsRemovedInPlaceOfWhatItLeadsTo) {
  fs::create_directory_symlink(outside_, tree_);
  EXPECT_TRUE(files_->RemoveTree(tree_).ok());
  EXPECT_FALSE(fs::exists(fs::symlink_status(tree_)));
  EXPECT_TRUE(OutsideIsWhole());
  Write(tree_, 1);
  EXPECT_TRUE(files_->RemoveTree(tree_).ok());
  EXPECT_FALSE(fs::exists(tree_));
}

TEST_F(DirectoryTreeTest, TheLinkOnTheWayIsTheCallers) {
  fs::create_directory(directory_ + "/real");
  fs::create_directory_symlink(directory_ + "/real", directory_ + "/way");
  MakeTree(directory_ + "/real/tree", 2);
  EXPECT_TRUE(files_->RemoveTree(directory_ + "/way/tree/").ok());
  EXPECT_FALSE(fs::exists(directory_ + "/real/tree"));
  EXPECT_TRUE(files_->RemoveTree(directory_ + "/way/tree").ok()) << "nothing is fine";
  EXPECT_TRUE(files_->RemoveTree(directory_ + "/none/tree").ok());
  for (const char* name : {"/way/.", "/way/..", "/way/../."}) {
    EXPECT_TRUE(absl::IsInvalidArgument(files_->RemoveTree(directory_ + name))) << name;
  }
  EXPECT_TRUE(fs::exists(directory_ + "/real"));
}

// A directory in the tree, or its top, changes places with a link that leads outside: before one
// call of the removal, for each of its calls.
TEST_F(DirectoryTreeTest, ALinkPutInPlaceOfADirectoryIsNotFollowed) {
  const std::string link = directory_ + "/link";
  for (const std::string& swapped : {tree_ + "/down", tree_}) {
    int calls = 1;
    for (int moment = 0; calls > moment - 1; ++moment) {
      MakeTree(tree_, 2);
      fs::create_directory_symlink(outside_, link);
      calls = 0;
      before_call = [&] {
        if (calls++ == moment) Swap(swapped, link);
      };
      files_->RemoveTree(tree_).IgnoreError();  // an error says that something was changed
      before_call = nullptr;
      ASSERT_TRUE(OutsideIsWhole()) << swapped << ", call " << moment;
      for (const std::string& left : {tree_, link}) {
        const absl::Status removed = files_->RemoveTree(left);
        EXPECT_TRUE(removed.ok()) << removed;
      }
    }
    EXPECT_GT(calls, 10) << "the last one was left alone";
  }
}

// The same all the time, by another thread.
TEST_F(DirectoryTreeTest, ALinkThatComesAndGoesIsNotFollowed) {
  const std::string link = directory_ + "/link";
  for (int round = 0; round < 40; ++round) {
    MakeTree(tree_, 2);
    fs::create_directory_symlink(outside_, link);
    std::atomic<bool> done{false};
    std::thread swapper([&] {
      while (!done) Swap(tree_ + "/down", link);
    });
    files_->RemoveTree(tree_).IgnoreError();  // what has moved out of it may be left
    done = true;
    swapper.join();
    ASSERT_TRUE(OutsideIsWhole());
    for (const std::string& left : {tree_, link}) {
      const absl::Status removed = files_->RemoveTree(left);
      EXPECT_TRUE(removed.ok()) << removed;
    }
  }
}

TEST_F(DirectoryTreeTest, WhatCannotBeRemovedDoesNotKeepTheRest) {
  MakeTree(tree_, 2);
  const std::string closed = tree_ + "/down/branch";
  ASSERT_EQ(::chmod(closed.c_str(), 0555), 0);
  absl::Status removed;
  AsAUser([&] { removed = files_->RemoveTree(tree_); });
  EXPECT_TRUE(absl::IsPermissionDenied(removed)) << removed;
  EXPECT_THAT(std::string(removed.message()), HasSubstr(closed + "/file"));
  EXPECT_EQ(Measure().bytes, 1) << "that file alone";
  ASSERT_EQ(::chmod(closed.c_str(), 0755), 0);
  EXPECT_TRUE(files_->RemoveTree(tree_).ok());
}

TEST_F(DirectoryTreeTest, ADirectoryIsEmptiedAndStays) {
  MakeTree(tree_, 100);
  EXPECT_TRUE(EmptyDirectory(OpenDirectory(AT_FDCWD, tree_.c_str()), tree_).ok());
  EXPECT_TRUE(fs::is_empty(tree_));
}

TEST_F(DirectoryTreeTest, ARemovalThatIsGivenUpLeavesTheRest) {
  fs::create_directory(tree_);
  for (const char* name : {"/a", "/b", "/c"}) Write(tree_ + name, 1);
  int asked = 0;
  const absl::Status status =
      EmptyDirectory(OpenDirectory(AT_FDCWD, tree_.c_str()), tree_, [&] { return ++asked > 2; });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(tree_));
  EXPECT_EQ(Measure().bytes, 1) << "it asks before each name";
  const absl::Status removed =
      EmptyDirectory(OpenDirectory(AT_FDCWD, tree_.c_str()), tree_, [] { return false; });
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_TRUE(fs::is_empty(tree_));
}

TEST_F(DirectoryTreeTest, TheSizeIsThatOfAllFilesDownToABound) {
  MakeTree(tree_, 2);
  Write(tree_ + "/more", 20);
  EXPECT_EQ(Measure().bytes, 26);
  EXPECT_TRUE(Measure().whole);
  EXPECT_EQ(MeasureTree(OpenDirectory(AT_FDCWD, tree_.c_str()), "down").bytes, 22);
  // The branches below are not at the top.
  EXPECT_EQ(MeasureTree(OpenDirectory(AT_FDCWD, tree_.c_str()), "branch").bytes, 25);
  ASSERT_TRUE(files_->RemoveTree(tree_).ok());

  // The branch of the last level is one level down more.
  MakeTree(tree_, kTreeLevelsMax - 2);
  EXPECT_TRUE(Measure().whole);
  EXPECT_EQ(Measure().bytes, 2 * (kTreeLevelsMax - 1));
  ASSERT_TRUE(files_->RemoveTree(tree_).ok());
  MakeTree(tree_, kTreeLevelsMax - 1);
  EXPECT_FALSE(Measure().whole);
  EXPECT_EQ(Measure().bytes, 2 * kTreeLevelsMax - 1);
}

TEST_F(DirectoryTreeTest, FilesWithHolesHaveABoundedSize) {
  constexpr int64_t kMost = int64_t{1} << 53;
  ::mkdir(tree_.c_str(), 0755);
  Write(tree_ + "/hole", 1);
  // File systems differ in how much they let a file claim.
  int64_t bytes = std::numeric_limits<int64_t>::max();
  while (bytes > 1 && ::truncate((tree_ + "/hole").c_str(), bytes) != 0) bytes /= 2;
  if (bytes < int64_t{1} << 40) GTEST_SKIP() << "files are smaller here";
  for (int64_t i = 0; i < 2 + kMost / bytes; ++i) {
    const std::string path = tree_ + "/hole" + std::to_string(i);
    Write(path, 1);
    ASSERT_EQ(::truncate(path.c_str(), bytes), 0);
  }
  EXPECT_EQ(Measure().bytes, kMost);
}

// A caller that tells a size must not take what it could not look into for nothing.
TEST_F(DirectoryTreeTest, ASizeWithoutWhatMayNotBeReadIsNotWhole) {
  MakeTree(tree_, 1);
  const std::string closed = tree_ + "/down";
  for (const mode_t mode : {0000, 0444}) {  // 0444: its names may be read, and no more
    ASSERT_EQ(::chmod(closed.c_str(), mode), 0);
    TreeSize size;
    AsAUser([&] { size = Measure(); });
    EXPECT_FALSE(size.whole) << mode;
    EXPECT_EQ(size.bytes, 2) << mode;
  }
  ASSERT_EQ(::chmod(closed.c_str(), 0755), 0);
  EXPECT_TRUE(Measure().whole);
  EXPECT_EQ(Measure().bytes, 4);
}

TEST_F(DirectoryTreeTest, NothingOutsideIsMeasured) {
  const std::string link = directory_ + "/link";
  MakeTree(tree_, 1);
  fs::create_directory_symlink(outside_, link);
  int calls = 1;
  for (int moment = 0; calls > moment - 1; ++moment) {
    calls = 0;
    before_call = [&] {
      if (calls++ == moment) Swap(tree_ + "/down", link);
    };
    const int64_t bytes = Measure().bytes;
    before_call = nullptr;
    EXPECT_GE(bytes, 2) << moment;
    EXPECT_LE(bytes, 4) << moment;
    if (fs::is_symlink(tree_ + "/down")) Swap(tree_ + "/down", link);
  }
}

}  // namespace
}  // namespace megatrain
