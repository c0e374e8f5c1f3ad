// A job's directory that belongs to another account, which changes it while the daemon measures and
// removes it. Needs root, and is skipped without.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/directory_tree.h"
#include "engine/base/file.h"
#include "engine/base/watched_file_system.h"
#include "server/files/file_identity.h"
#include "server/files/job_files.h"
#include "server/files/own_directory.h"
#include "server/manager/job_remover.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

// Lets `before` happen when a tree is about to be removed.
class InterruptedFileSystem : public WatchedFileSystem {
 public:
  explicit InterruptedFileSystem(std::function<void()> before)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        before_(std::move(before)) {}
  absl::Status RemoveTree(const std::string& path) override {
    before_();
    return WatchedFileSystem::RemoveTree(path);
  }

 private:
  const std::function<void()> before_;
};

class SubmittersDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MissingCapabilities().empty()) {
      GTEST_SKIP() << "acting for another account needs root: " << MissingCapabilities();
    }
    const passwd* const nobody = ::getpwnam("nobody");
    if (nobody == nullptr) GTEST_SKIP() << "there is no account nobody";
    submitter_ = *LookUpIdentity(nobody->pw_uid);
    ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
    fs::create_directory(state_);
    Write(state_ + "/store", 1000);
    MakeJob();
  }

  void MakeJob() {
    const auto files = JobFiles::Open(state_, {});
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_TRUE((*files)->PrepareForRun(submitter_.uid, "j1").ok());
    Write(state_ + "/jobs/j1/log", 5);
  }
  static bool Write(const std::string& path, size_t bytes) {
    std::ofstream file(path);
    file << std::string(bytes, 'x');
    return file.good();
  }
  bool JobIsThere() const { return fs::exists(state_ + "/jobs/j1"); }

  FileIdentity submitter_;
  const TestDirectory temporary_{TestDirectory::Place::kShort};
  const std::string directory_ = temporary_.path();
  const std::string state_ = directory_ + "/state";
  const std::string own_ = OwnCheckpointDirectory(state_, "j1");
};

TEST_F(SubmittersDirectoryTest, IsMeasuredAndSearchedWithItsOwnersRights) {
  {
    const ScopedIdentity as(&submitter_);
    ::mkdir((own_ + "/closed").c_str(), 0700);
    ASSERT_TRUE(Write(own_ + "/closed/file", 10));
    ASSERT_EQ(::symlink(state_.c_str(), (own_ + "/link").c_str()), 0);
  }
  EXPECT_EQ(MeasureJobDirectory(state_, "j1").bytes, 15);
  EXPECT_TRUE(MeasureJobDirectory(state_, "j1").whole);
  fs::create_directory(own_ + "/step-00000001");
  Write(own_ + "/step-00000001/file", 100);
  ASSERT_EQ(::chmod((own_ + "/step-00000001").c_str(), 0700), 0);
  EXPECT_EQ(MeasureJobDirectory(state_, "j1").bytes, 15) << "the daemon's, but not where it looks";
  EXPECT_TRUE(*OwnDirectoryHas(state_, "j1", "step-"));
  EXPECT_FALSE(*OwnDirectoryHas(state_, "j1", "link-"));
  EXPECT_FALSE(*OwnDirectoryHas(state_, "j2", "step-"));
  EXPECT_EQ(MeasureJobDirectory(state_, "j2").bytes, 0);
}

// What lies too deep to be measured is no place to hide files in.
TEST_F(SubmittersDirectoryTest, IsNotMeasuredWholeWhereItIsTooDeep) {
  {
    const ScopedIdentity as(&submitter_);
    std::string deepest = own_;
    for (int level = 0; level <= kTreeLevelsMax; ++level) {
      deepest += "/d";
      ASSERT_EQ(::mkdir(deepest.c_str(), 0700), 0);
    }
    ASSERT_TRUE(Write(own_ + "/file", 10));
  }
  const TreeSize size = MeasureJobDirectory(state_, "j1");
  EXPECT_EQ(size.bytes, 15);
  EXPECT_FALSE(size.whole);
}

TEST_F(SubmittersDirectoryTest, IsRemovedWithItsOwnersRights) {
  fs::create_directories(own_ + "/foreign");
  Write(own_ + "/foreign/file", 1);
  {
    const ScopedIdentity as(&submitter_);
    ::mkdir((own_ + "/mine").c_str(), 0700);
    ASSERT_TRUE(Write(own_ + "/mine/file", 1));
    ASSERT_EQ(::symlink(state_.c_str(), (own_ + "/link").c_str()), 0);
  }
  // What another put there stays, though the daemon could remove it.
  const absl::Status refused = RemoveJobFiles(state_, "j1", PosixFileSystem());
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(own_ + "/foreign/file"));
  EXPECT_TRUE(fs::exists(own_ + "/foreign/file"));
  EXPECT_FALSE(fs::exists(own_ + "/mine"));
  fs::remove(own_ + "/foreign/file");
  const absl::Status removed = RemoveJobFiles(state_, "j1", PosixFileSystem());
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_FALSE(JobIsThere());
  EXPECT_TRUE(fs::exists(state_ + "/store"));
}

TEST_F(SubmittersDirectoryTest, IsNotEnteredWhereItIsClosedToItsOwner) {
  fs::create_directory(own_ + "/step-00000001");
  Write(own_ + "/file", 10);
  ASSERT_EQ(::chmod(own_.c_str(), 0), 0);
  EXPECT_EQ(MeasureJobDirectory(state_, "j1").bytes, 5) << "the log";
  EXPECT_FALSE(MeasureJobDirectory(state_, "j1").whole);
  const absl::Status hidden = OwnDirectoryHas(state_, "j1", "step-").status();
  EXPECT_TRUE(absl::IsPermissionDenied(hidden)) << hidden;
  const absl::Status refused = RemoveJobFiles(state_, "j1", PosixFileSystem());
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  ASSERT_EQ(::chmod(own_.c_str(), 0700), 0);
  EXPECT_TRUE(fs::exists(own_ + "/step-00000001") && fs::exists(own_ + "/file"));
  EXPECT_TRUE(MeasureJobDirectory(state_, "j1").whole);
  ASSERT_EQ(::chmod((own_ + "/step-00000001").c_str(), 0), 0);
  EXPECT_FALSE(MeasureJobDirectory(state_, "j1").whole) << "what is in there is hidden";
  Write(own_ + "/step-00000001/file", 10);
  // Its names may be read, and nothing of the files.
  ASSERT_EQ(::chmod((own_ + "/step-00000001").c_str(), 0444), 0);
  EXPECT_FALSE(MeasureJobDirectory(state_, "j1").whole);
}

// A submitter may go on filling the directory: the daemon stops all the same.
TEST_F(SubmittersDirectoryTest, IsLeftForTheNextStartWhenTheDaemonStops) {
  {
    const ScopedIdentity as(&submitter_);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(Write(absl::StrCat(own_, "/file-", i), 1));
    }
  }
  int names = 0;
  const auto stopping = [&names] { return ++names > 10; };
  const absl::Status given_up = RemoveJobFiles(state_, "j1", PosixFileSystem(), stopping);
  EXPECT_TRUE(absl::IsCancelled(given_up)) << given_up;
  EXPECT_EQ(MeasureJobDirectory(state_, "j1").bytes, 45) << "40 files, and the log";
  EXPECT_TRUE(RemoveJobFiles(state_, "j1", PosixFileSystem()).ok());
  EXPECT_FALSE(JobIsThere());
}

// The submitter has waited for the moment when the daemon goes on in its own name.
TEST_F(SubmittersDirectoryTest, IsGoneBeforeTheDaemonRemovesTheRest) {
  bool planted = false;
  InterruptedFileSystem files([&] {
    const ScopedIdentity as(&submitter_);
    planted = Write(own_ + "/trap", 1) || Write(state_ + "/jobs/j1/trap", 1);
  });
  EXPECT_TRUE(RemoveJobFiles(state_, "j1", &files).ok());
  EXPECT_FALSE(planted);
  EXPECT_FALSE(JobIsThere());
}

// The submitter makes a directory again and again and has it change places with a link to the
// daemon's files.
TEST_F(SubmittersDirectoryTest, LeadsNowhereHoweverItChanges) {
  std::atomic<bool> done{false};
  std::thread submitter([&] {
    const ScopedIdentity as(&submitter_);
    const std::string trap = own_ + "/trap", link = own_ + "/link";
    while (!done) {
      ::mkdir(trap.c_str(), 0777);
      if (::symlink(state_.c_str(), link.c_str()) != 0 && errno != EEXIST) continue;
      for (int i = 0; i < 20; ++i) {
        ::renameat2(AT_FDCWD, trap.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
      }
    }
  });
  for (int round = 0; round < 200 && fs::exists(state_ + "/store"); ++round) {
    RemoveJobFiles(state_, "j1", PosixFileSystem()).IgnoreError();
    EXPECT_LE(MeasureJobDirectory(state_, "j1").bytes, 5);
    if (!JobIsThere()) MakeJob();
  }
  done = true;
  submitter.join();
  EXPECT_TRUE(fs::exists(state_ + "/store"));
  const absl::Status removed = RemoveJobFiles(state_, "j1", PosixFileSystem());
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_FALSE(JobIsThere());
}

}  // namespace
}  // namespace megatrain
