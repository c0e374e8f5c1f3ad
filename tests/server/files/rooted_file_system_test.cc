// Paths that stay beneath the roots, paths that do not, and links that change while they are
// followed. Every path and link that leads out ends at a file or directory of the test's own, so
// that a product that confines nothing harms nothing either.
#include "server/files/rooted_file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RootedFileSystemTest : public ::testing::Test {
 protected:
  RootedFileSystemTest() {
    fs::create_directory(root_);
    Write(directory_ + "/secret", "secret");
    Write(root_ + "/file", "content");
    auto root = RootDirectory::Open(root_);
    EXPECT_TRUE(root.ok()) << root.status();
    files_ = std::make_unique<RootedFileSystem>(RootedFileSystem::Roots{*root}, std::nullopt);
  }

  static void Write(const std::string& path, const std::string& content) {
    std::ofstream(path) << content;
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  absl::StatusOr<std::string> Read(const std::string& path) {
    return ReadWholeFile(files_.get(), path, 1000);
  }

  // No call opens, makes, changes or tells anything of `path`.
  void ExpectOutside(const std::string& path) {
    const auto expect = [&](const char* call, const absl::Status& status) {
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << call << ": " << status;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(root_))) << call;
    };
    expect("read", files_->OpenForReading(path).status());
    expect("write", files_->NewWritableFile(path).status());
    expect("lock", files_->TryLock(path).status());
    expect("examine", files_->Examine(path).status());
    expect("real path", files_->RealPath(path).status());
    expect("list", files_->ListDirectory(path).status());
    expect("sync", files_->SyncDirectory(path));
    expect("make", files_->CreateDirectories(path));
    expect("free bytes", files_->FreeDiskBytes(path).status());
    expect("writable", files_->CheckWritable(path));
    EXPECT_FALSE(files_->IsDirectory(path));
  }
  void ExpectSecretIsKept() {
    EXPECT_EQ(ReadWholeFile(PosixFileSystem(), directory_ + "/secret", 100).value_or("gone"),
              "secret");
  }

  const TestDirectory own_;
  const std::string directory_ = own_.path(), root_ = directory_ + "/root";
  std::unique_ptr<RootedFileSystem> files_;
};

TEST_F(RootedFileSystemTest, DoesEverythingBeneathItsRoots) {
  const std::string made = root_ + "/a/b";
  ASSERT_TRUE(files_->CreateDirectories(made).ok());
  ASSERT_TRUE(files_->CreateDirectories(made).ok());
  ASSERT_TRUE(AtomicWriteFile(files_.get(), made + "/x", "first").ok());
  ASSERT_TRUE(AtomicWriteFile(files_.get(), made + "/x", "second").ok());
  EXPECT_EQ(*Read(made + "/x"), "second");
  EXPECT_EQ(*Read(root_ + "/./a//b/../b/x"), "second");  // .. within
  EXPECT_THAT(*files_->ListDirectory(root_), ElementsAre("a", "file"));
  EXPECT_TRUE(files_->FileExists(made + "/x"));
  EXPECT_FALSE(files_->FileExists(made + "/y"));
  EXPECT_TRUE(files_->IsDirectory(made));
  EXPECT_TRUE(files_->IsDirectory(root_));
  EXPECT_EQ(files_->Examine(made + "/x")->bytes, 6);
  EXPECT_EQ(*files_->RealPath(made), made);
  EXPECT_GT(*files_->FreeDiskBytes(made + "/not/there"), 0);
  EXPECT_GT(*files_->FreeDiskBytes(made), static_cast<int64_t>(fs::space(root_).available / 2));
  EXPECT_TRUE(files_->CheckWritable(made + "/not/there").ok());
  auto lock = files_->TryLock(made + "/.lock");
  ASSERT_TRUE(lock.ok());
  EXPECT_NE(*lock, nullptr);
  EXPECT_EQ(*files_->TryLock(made + "/.lock"), nullptr);
  lock->reset();
  EXPECT_NE(*files_->TryLock(made + "/.lock"), nullptr);
  ASSERT_TRUE(files_->RemoveFile(made + "/x").ok());
  EXPECT_TRUE(absl::IsNotFound(files_->RemoveFile(made + "/x")));
  ASSERT_TRUE(files_->Rename(root_ + "/a", root_ + "/c").ok());
  ASSERT_TRUE(files_->RemoveTree(root_ + "/c").ok());
  EXPECT_TRUE(files_->RemoveTree(root_ + "/c").ok());
  EXPECT_THAT(*files_->ListDirectory(root_), ElementsAre("file"));
}

TEST_F(RootedFileSystemTest, SlashesAtTheEndOfAPathChangeNothing) {
  const auto root = RootDirectory::Open(root_ + "//");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ((*root)->path(), root_);
  EXPECT_EQ((*root)->Beneath(root_ + "/file"), "file");
  EXPECT_EQ((*root)->Beneath(root_ + "/"), ".");
  ASSERT_TRUE(files_->CreateDirectories(root_ + "/a/b//").ok());
  EXPECT_TRUE(files_->CheckWritable(root_ + "/a/b/new/").ok());
  ASSERT_TRUE(files_->Rename(root_ + "/a/", root_ + "/c/").ok());
  EXPECT_TRUE(files_->FileExists(root_ + "/c/b/"));
  ASSERT_TRUE(files_->RemoveTree(root_ + "/c//").ok());
  EXPECT_FALSE(fs::exists(root_ + "/c"));
}

TEST_F(RootedFileSystemTest, MakesNoMoreThan64DirectoriesForAPath) {
  std::string path = root_;
  for (int i = 0; i < 65; ++i) path += "/d";
  EXPECT_TRUE(absl::IsNotFound(files_->CreateDirectories(path)));
  EXPECT_FALSE(fs::exists(root_ + "/d"));
  const absl::Status made = files_->CreateDirectories(ParentDirectory(path));
  EXPECT_TRUE(made.ok()) << made;
  EXPECT_TRUE(fs::is_directory(ParentDirectory(path)));
}

// A link out of a root may be a root itself.
TEST_F(RootedFileSystemTest, OfRootsWithinEachOtherTheInnermostCounts) {
  fs::create_directory(directory_ + "/elsewhere");
  Write(directory_ + "/elsewhere/file", "far away");
  fs::create_symlink(directory_ + "/elsewhere", root_ + "/link");
  const auto outer = RootDirectory::Open(root_), inner = RootDirectory::Open(root_ + "/link");
  ASSERT_TRUE(outer.ok() && inner.ok());
  for (const auto& roots : {RootedFileSystem::Roots{*outer, *inner}, {*inner, *outer}}) {
    files_ = std::make_unique<RootedFileSystem>(roots, std::nullopt);
    EXPECT_EQ(Read(root_ + "/link/file").value_or("refused"), "far away");
    EXPECT_EQ(Read(root_ + "/file").value_or("refused"), "content");
  }
}

// Its name has one letter, as "." has, by which a root is named from itself.
TEST_F(RootedFileSystemTest, ARootWithinAnotherIsNotRemoved) {
  fs::create_directory(root_ + "/a");
  const auto outer = RootDirectory::Open(root_), inner = RootDirectory::Open(root_ + "/a");
  ASSERT_TRUE(outer.ok() && inner.ok());
  for (const auto& roots : {RootedFileSystem::Roots{*outer, *inner}, {*inner, *outer}}) {
    files_ = std::make_unique<RootedFileSystem>(roots, std::nullopt);
    EXPECT_EQ(files_->RemoveTree(root_ + "/a").code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(fs::is_directory(root_ + "/a"));
  }
}

TEST_F(RootedFileSystemTest, GivesModesWhateverTheUmask) {
  const mode_t before = ::umask(0);
  for (const mode_t mask : {0, 022, 077}) {
    ::umask(mask);
    const std::string made = absl::StrCat(root_, "/", mask);
    ASSERT_TRUE(files_->CreateDirectories(made + "/below").ok());
    ASSERT_TRUE(WriteFileSynced(files_.get(), made + "/file", "x").ok());
    ASSERT_TRUE(files_->TryLock(made + "/lock").ok());
    EXPECT_EQ(ModeOf(made), 0750u);
    EXPECT_EQ(ModeOf(made + "/below"), 0750u);
    EXPECT_EQ(ModeOf(made + "/file"), 0640u);
    EXPECT_EQ(ModeOf(made + "/lock"), 0640u);
  }
  ::umask(before);
}

TEST_F(RootedFileSystemTest, ADirectoryPassesItsGroupOnIfTheOneAboveDoes) {
  ASSERT_EQ(::chmod(root_.c_str(), 02750), 0);
  const mode_t before = ::umask(0077);
  const absl::Status made = files_->CreateDirectories(root_ + "/made");
  ::umask(before);
  ASSERT_TRUE(made.ok()) << made;
  EXPECT_EQ(ModeOf(root_ + "/made"), 02750u);
}

TEST_F(RootedFileSystemTest, RefusesWhatItsTextPutsElsewhere) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);  // where a relative path would lead
  for (const std::string& path :
       {directory_ + "/secret", directory_ + "/not-there", root_ + "2/file", directory_,
        std::string("secret"), "/proc/self/root" + directory_ + "/secret", std::string()}) {
    ExpectOutside(path);
  }
  fs::current_path(before);
  ExpectSecretIsKept();
}

TEST_F(RootedFileSystemTest, RefusesWhatLeadsOutByDots) {
  for (const std::string& path : {root_ + "/../secret", root_ + "/..", root_ + "/../not-there",
                                  root_ + "/../../../../../../../.." + directory_ + "/secret"}) {
    ExpectOutside(path);
  }
  ExpectSecretIsKept();
}

TEST_F(RootedFileSystemTest, RefusesWhatLeadsOutByLinks) {
  const Descriptor secret(::open((directory_ + "/secret").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(secret.is_open());
  fs::create_symlink("../secret", root_ + "/up");
  fs::create_symlink(directory_ + "/secret", root_ + "/absolute");
  fs::create_symlink(directory_, root_ + "/top");
  fs::create_symlink("/proc/self/root", root_ + "/proc");
  fs::create_symlink("/proc/self/fd", root_ + "/fd");
  fs::create_symlink("..", root_ + "/parent");
  fs::create_symlink(root_ + "/file", root_ + "/back");  // an absolute one, though it comes back
  for (const std::string& path :
       {root_ + "/up", root_ + "/absolute", root_ + "/top/secret", root_ + "/top",
        root_ + "/proc" + directory_ + "/secret", absl::StrCat(root_, "/fd/", secret.get()),
        root_ + "/parent/secret", root_ + "/parent/not-there", root_ + "/back"}) {
    ExpectOutside(path);
  }
  EXPECT_FALSE(files_->Rename(root_ + "/file", root_ + "/parent/taken").ok());
  EXPECT_FALSE(files_->Rename(root_ + "/parent/secret", root_ + "/taken").ok());
  EXPECT_FALSE(files_->RemoveFile(root_ + "/parent/secret").ok());
  fs::create_directory(directory_ + "/tree");
  EXPECT_FALSE(files_->RemoveTree(root_ + "/parent/tree").ok());
  EXPECT_FALSE(files_->RemoveTree(root_ + "/top/tree").ok());
  EXPECT_TRUE(fs::exists(directory_ + "/tree"));
  ExpectSecretIsKept();
  // A link is a name like others: it can be removed, what it leads to stays.
  EXPECT_TRUE(files_->RemoveTree(root_ + "/parent").ok());
  ExpectSecretIsKept();
}

TEST_F(RootedFileSystemTest, FollowsLinksThatStay) {
  fs::create_directories(root_ + "/a/b");
  fs::create_symlink("../file", root_ + "/a/link");
  fs::create_symlink("a/b", root_ + "/short");
  EXPECT_EQ(*Read(root_ + "/a/link"), "content");
  ASSERT_TRUE(WriteFileSynced(files_.get(), root_ + "/short/new", "new").ok());
  EXPECT_EQ(*Read(root_ + "/a/b/new"), "new");
  EXPECT_EQ(*files_->RealPath(root_ + "/short"), root_ + "/a/b");
}

TEST_F(RootedFileSystemTest, TakesAnEnclosingDirectorysOtherName) {
  const std::string link = directory_ + "/link";
  fs::create_symlink("root", link);
  auto root = RootDirectory::Open(link);
  ASSERT_TRUE(root.ok());
  RootedFileSystem files({*root}, std::nullopt);
  EXPECT_TRUE(files.OpenForReading(link + "/file").ok());
  EXPECT_TRUE(files.OpenForReading(root_ + "/file").ok());
  EXPECT_TRUE(files.OpenForReading(*files.RealPath(link + "/file")).ok());
}

TEST_F(RootedFileSystemTest, RefusesWhatIsNoFile) {
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  std::vector<std::string> paths = {pipe};
  // Only root can make one.
  if (::mknod((root_ + "/null").c_str(), S_IFCHR | 0666, ::makedev(1, 3)) == 0) {
    paths.push_back(root_ + "/null");
  }
  for (const std::string& path : paths) {
    for (const absl::Status& status :
         {files_->OpenForReading(path).status(), files_->NewWritableFile(path).status(),
          files_->TryLock(path).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("is not a regular file"));
    }
  }
  EXPECT_TRUE(absl::IsInvalidArgument(files_->OpenForReading(root_).status()));
  EXPECT_FALSE(files_->NewWritableFile(root_).ok());
  EXPECT_FALSE(files_->CreateDirectories(root_ + "/file/below").ok());
  for (const char* const path : {"/file", "/file/below", "/file/far/below"}) {
    const absl::Status status = files_->CheckWritable(root_ + path);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(status.message(), root_ + "/file is not a directory");
  }
}

TEST_F(RootedFileSystemTest, RefusesNamesThatNoFileCanHave) {
  EXPECT_TRUE(absl::IsInvalidArgument(Read(root_ + "/" + std::string(300, 'x')).status()));
  std::string deep = root_;
  while (deep.size() < 5000) deep += "/directory";
  EXPECT_TRUE(absl::IsInvalidArgument(Read(deep).status()));
  EXPECT_FALSE(files_->CreateDirectories(deep).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(Read(root_ + std::string("/file\0/../../secret", 19)).status()));
  fs::create_symlink("loop", root_ + "/loop");
  EXPECT_TRUE(absl::IsInvalidArgument(Read(root_ + "/loop").status()));
  for (const char* name : {"/.", "/..", "/a/.."}) {
    EXPECT_FALSE(files_->RemoveTree(root_ + name).ok()) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(files_->RemoveTree(root_)));
  EXPECT_TRUE(fs::exists(root_ + "/file"));
}

TEST_F(RootedFileSystemTest, ADanglingLinkIsNotMadeToHoldAFile) {
  fs::create_symlink("nowhere", root_ + "/dangling");
  EXPECT_TRUE(absl::IsNotFound(files_->NewWritableFile(root_ + "/dangling").status()));
  EXPECT_TRUE(files_->FileExists(root_ + "/dangling"));
  EXPECT_FALSE(fs::exists(root_ + "/nowhere"));
}

TEST_F(RootedFileSystemTest, ALinkToADirectoryIsOneAndADanglingLinkIsNot) {
  fs::create_directory(root_ + "/real");
  fs::create_symlink("real", root_ + "/link");
  EXPECT_TRUE(files_->CreateDirectories(root_ + "/link").ok());
  EXPECT_TRUE(files_->CreateDirectories(root_ + "/link/new").ok());
  EXPECT_TRUE(fs::is_directory(root_ + "/real/new"));
  fs::create_symlink("nowhere", root_ + "/dangling");
  EXPECT_FALSE(files_->CreateDirectories(root_ + "/dangling").ok());
  EXPECT_FALSE(files_->IsDirectory(root_ + "/dangling"));
  EXPECT_FALSE(fs::exists(root_ + "/nowhere"));
}

TEST_F(RootedFileSystemTest, WhatIsWrittenAnewHasNothingOfBefore) {
  const std::string path = root_ + "/file";
  Write(path, std::string(3 * kDirectAlignment, 'x'));
  ASSERT_TRUE(WriteFileSynced(files_.get(), path, "new").ok());
  EXPECT_EQ(*Read(path), "new");
  Write(path, std::string(3 * kDirectAlignment, 'x'));
  alignas(kDirectAlignment) char block[kDirectAlignment], copy[kDirectAlignment];
  std::fill(std::begin(block), std::end(block), 'b');
  const auto blocks = files_->NewBlockFile(path, kDirectAlignment);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  ASSERT_TRUE((*blocks)->Write(0, block, kDirectAlignment).ok());
  ASSERT_TRUE((*blocks)->Sync().ok());
  ASSERT_TRUE((*blocks)->Close().ok());
  const auto reader = files_->OpenBlocksForReading(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), kDirectAlignment);
  ASSERT_TRUE((*reader)->Read(0, copy, kDirectAlignment).ok());
  EXPECT_TRUE(std::equal(std::begin(block), std::end(block), std::begin(copy)));
}

// One thread swaps a directory with a link that leads out, all the time; the other works beneath
// its name. Whatever happens inside, nothing happens outside.
TEST_F(RootedFileSystemTest, ALinkPutInPlaceOfADirectoryLeadsNowhere) {
  const std::string outside = directory_ + "/outside";
  fs::create_directory(outside);
  Write(outside + "/file", "secret");
  fs::create_directory(root_ + "/real");
  Write(root_ + "/real/file", "inside");
  fs::create_symlink("../outside", root_ + "/link");
  const std::string swapped = root_ + "/swapped";
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    while (!done) {
      ::rename((root_ + "/real").c_str(), swapped.c_str());
      ::rename(swapped.c_str(), (root_ + "/real").c_str());
      ::rename((root_ + "/link").c_str(), swapped.c_str());
      ::rename(swapped.c_str(), (root_ + "/link").c_str());
    }
  });
  for (int i = 0; i < 3000; ++i) {
    EXPECT_EQ(Read(swapped + "/file").value_or("inside"), "inside");
    files_->NewWritableFile(swapped + "/new").status().IgnoreError();
    files_->CreateDirectories(swapped + "/below").IgnoreError();
    files_->Rename(swapped + "/new", swapped + "/newer").IgnoreError();
    files_->RemoveFile(swapped + "/newer").IgnoreError();
    files_->RemoveTree(swapped + "/below").IgnoreError();
    files_->TryLock(swapped + "/lock").status().IgnoreError();
  }
  done = true;
  swapper.join();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(outside))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("file"));
}

TEST_F(RootedFileSystemTest, ARootMustBeADirectory) {
  EXPECT_TRUE(absl::IsNotFound(RootDirectory::Open(root_ + "/none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RootDirectory::Open(root_ + "/file").status()));
}

TEST_F(RootedFileSystemTest, TheWholeMachineBoundsNothing) {
  fs::create_symlink(root_ + "/file", root_ + "/absolute");
  auto root = RootDirectory::Open("/");
  ASSERT_TRUE(root.ok());
  RootedFileSystem files({*root}, std::nullopt);
  EXPECT_EQ(*ReadWholeFile(&files, root_ + "/absolute", 100), "content");
  EXPECT_EQ(*ReadWholeFile(&files, root_ + "/../secret", 100), "secret");
}

}  // namespace
}  // namespace megatrain
