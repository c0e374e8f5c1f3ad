#include "engine/checkpoint/shared_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/comm/launch_environment.h"
#include "engine/comm/thread_communicator.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// What a rank has: its path to the directory, and its file system.
struct Rank {
  std::string directory;
  FileSystem* files = PosixFileSystem();
};

// The results of all ranks, which must be alike. With `machines`, each of these has a directory.
absl::Status Check(const std::vector<Rank>& ranks, const std::vector<std::string>& machines = {},
                   absl::Duration patience = absl::Milliseconds(100)) {
  std::vector<CommunicatorSet> sets =
      CreateThreadCommunicators(static_cast<int>(ranks.size()), absl::Seconds(60));
  std::vector<absl::Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      Communicator* const own = sets[i].control.get();
      const absl::StatusOr<DirectoryRanks> sharing =
          machines.empty() ? AllInOneDirectory(own) : OneDirectoryForEachMachine(own, machines);
      ASSERT_TRUE(sharing.ok()) << sharing.status();
      results[i] = CheckIsShared(ranks[i].directory, *sharing, ranks[i].files, patience);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, Each(results[0]));
  return results[0];
}

std::vector<std::string> NamesIn(const std::string& directory) {
  return PosixFileSystem()->ListDirectory(directory).value();
}

class SharedDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(one_); }

  const TestDirectory own_;
  const std::string one_ = own_ / "one";
};

TEST_F(SharedDirectoryTest, SeenByAllUnderAnyPathAndLeftAsItWas) {
  own_.Write("one/step-00000001", "");
  std::filesystem::create_directory_symlink(one_, own_ / "link");
  const absl::Status status = Check({{one_}, {own_ / "link"}, {one_}, {one_ + "/../one"}});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(NamesIn(one_), ElementsAre("step-00000001"));
}

// Remembers for a while that a file was not there, as file systems of networks do.
class LateFileSystem : public WatchedFileSystem {
 public:
  LateFileSystem() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  bool FileExists(const std::string& path) override {
    return ++looks_ > 2 && WatchedFileSystem::FileExists(path);
  }

 private:
  int looks_ = 0;
};

TEST_F(SharedDirectoryTest, MayShowAFileLate) {
  LateFileSystem late;
  const absl::Status status = Check({{one_}, {one_, &late}}, {}, absl::Seconds(60));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(NamesIn(one_), IsEmpty());
}

TEST_F(SharedDirectoryTest, TheRanksThatDoNotSeeItAreNamed) {
  std::filesystem::create_directory(own_ / "two");
  const absl::Status status = Check({{one_}, {own_ / "two"}, {one_}, {own_ / "none"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(absl::StrCat("checkpoint.directory: ", one_, " is not shared")),
                    HasSubstr("what rank 0 on "), HasSubstr("is not seen by rank 1 on "),
                    HasSubstr(", rank 3 on "), Not(HasSubstr("rank 2")),
                    HasSubstr("mounted at the same path on all machines")));
  EXPECT_THAT(NamesIn(one_), IsEmpty());
  EXPECT_THAT(NamesIn(own_ / "two"), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(own_ / "none"));
}

TEST_F(SharedDirectoryTest, EachMachineMayHaveItsOwn) {
  std::filesystem::create_directory(own_ / "two");
  const std::vector<Rank> ranks = {{one_}, {one_}, {own_ / "two"}};
  EXPECT_TRUE(Check(ranks, {"a", "a", "b"}).ok());
  EXPECT_THAT(NamesIn(one_), IsEmpty());
  EXPECT_THAT(NamesIn(own_ / "two"), IsEmpty());
  absl::Status status = Check(ranks, {"a", "b", "c"});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("checkpoint.shared: false, but rank "), HasSubstr(" share ")));
  status = Check(ranks, {"a", "b", "b"});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  status = Check({{own_ / "two"}, {one_}, {own_ / "none"}}, {"a", "b", "b"});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("what rank 1 on "), HasSubstr("is not seen by rank 2 on "),
                    HasSubstr("The processes of a machine")));
}

TEST_F(SharedDirectoryTest, ARankThatCannotWriteIsNamed) {
  WatchedFileSystem read_only(PosixFileSystem(),
                              [] { return absl::PermissionDeniedError("read only"); });
  for (const size_t which : {0, 1}) {
    std::vector<Rank> ranks(3, {one_});
    ranks[which].files = &read_only;
    const absl::Status status = Check(ranks);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("checkpoint.directory: rank ", which, " on ")),
                      HasSubstr(absl::StrCat("cannot write in ", one_, ": read only"))));
    EXPECT_THAT(NamesIn(one_), IsEmpty());
  }
}

// What has another remedy, or none, keeps its code.
TEST_F(SharedDirectoryTest, AFullDiskAndAnEndAreNoMatterOfSharing) {
  for (const absl::Status& error : {DiskFullError("disk full"), absl::CancelledError("ended")}) {
    WatchedFileSystem failing(PosixFileSystem(), [&] { return error; });
    const absl::Status status = Check({{one_}, {one_, &failing}});
    EXPECT_EQ(status.code(), error.code()) << status;
    EXPECT_EQ(IsDiskFull(status), IsDiskFull(error));
    EXPECT_EQ(status.message(), absl::StrCat("rank 1 on ", HostName(), ": ", error.message()));
    EXPECT_THAT(NamesIn(one_), IsEmpty());
  }
}

// The ranks are killed in the midst of the check.
TEST_F(SharedDirectoryTest, WhatDeadRanksLeftIsRemovedAndNothingElse) {
  const std::string digits = "0123456789abcdef0123456789abcdef";
  own_.Write(absl::StrCat("one/shared-", digits, "-0"), "");
  own_.Write(absl::StrCat("one/shared-", digits, "-12"), "");
  const std::vector<std::string> foreign = {absl::StrCat("shared-", digits, "-1"), "shared-notes",
                                            absl::StrCat("shared-", digits, "-x"),
                                            absl::StrCat("shared-", digits)};
  for (const std::string& name : foreign) own_.Write("one/" + name, "mine");
  EXPECT_TRUE(ListSteps(one_)->empty());
  const auto lines = RemoveLeftovers(one_);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->size(), 2u);
  EXPECT_THAT(NamesIn(one_), ::testing::UnorderedElementsAreArray(foreign));
}

}  // namespace
}  // namespace megatrain
