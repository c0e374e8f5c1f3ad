// The names that the parts of a checkpoint get, where each machine has a directory of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/comm/thread_communicator.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/engine/checkpoint/held_parts.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DType kDType = DType::kBF16;
constexpr int kRanks = 2;

// A disk on which no checkpoint gets its name.
class NoNames : public WatchedFileSystem {
 public:
  NoNames() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (from == absl::StrCat(to, kUnfinishedSuffix)) return absl::InternalError("no name");
    return WatchedFileSystem::Rename(from, to);
  }
};

class MachinePartsTest : public ::testing::Test {
 protected:
  using Results = std::vector<absl::StatusOr<std::string>>;

  void SetUp() override { WriteConfigDirectory(PosixFileSystem(), config_); }

  // Saves step 2 by ranks on machines of their own, which write through files[rank] into
  // directories[rank].
  Results Save(const std::vector<std::string>& directories, const std::vector<FileSystem*>& files) {
    TileSet whole(TinyLayout(), kDType);
    whole.Fill(2);
    Parts parts(TinyLayout(), kDType, [](int64_t elements) { return EvenCuts(elements, kRanks); });
    parts.Split(whole);
    std::vector<CommunicatorSet> communicators =
        CreateThreadCommunicators(kRanks, absl::Seconds(60));
    const std::vector<std::string> machines = {"a", "b"};
    Results results(kRanks, absl::UnknownError("not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<Communicator> own = std::move(communicators[rank].control);
        results[rank] = [&]() -> absl::StatusOr<std::string> {
          MT_ASSIGN_OR_RETURN(DirectoryRanks ranks,
                              OneDirectoryForEachMachine(own.get(), machines));
          for (int i = 0; i < parts.size(); ++i) ranks.held.push_back(parts.part(i, rank).held);
          MT_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWriter> writer,
                              CheckpointWriter::Begin(directories[rank], TinyLayout(),
                                                      MakeState(TinyLayout(), kDType, 2), config_,
                                                      files[rank], ranks));
          for (int i = 0; i < parts.size(); ++i) {
            MT_RETURN_IF_ERROR(writer->WriteTile(i, {parts.part(i, rank)}));
          }
          return writer->Finish({});
        }();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  static std::string ManifestIn(const std::string& directory) {
    const std::string path = JoinPath(JoinPath(directory, StepDirectoryName(2)), kManifestFile);
    return ReadWholeFile(PosixFileSystem(), path, 1 << 20).value_or("");
  }

  const TestDirectory own_;
  const std::string config_ = own_ / "model";
};

// One machine has given its part the name already, and perhaps moved an older one aside for it.
TEST_F(MachinePartsTest, ANameThatOneMachineCannotGiveIsTakenBackByTheOther) {
  FileSystem* const posix = PosixFileSystem();
  for (const bool had_one : {false, true}) {
    for (const int failing : {0, 1}) {
      SCOPED_TRACE(absl::StrCat("rank ", failing, had_one ? ", replacing" : ""));
      std::vector<std::string> directories, before;
      for (const char* const machine : {"a", "b"}) {
        directories.push_back(own_ / absl::StrCat(machine, failing, had_one ? "old" : ""));
      }
      if (had_one) {
        for (const auto& result : Save(directories, {posix, posix})) {
          ASSERT_TRUE(result.ok()) << result.status();
        }
      }
      for (const std::string& directory : directories) before.push_back(ManifestIn(directory));
      EXPECT_EQ(before[0].empty(), !had_one);

      NoNames no_names;
      std::vector<FileSystem*> files(kRanks, posix);
      files[static_cast<size_t>(failing)] = &no_names;
      for (const auto& result : Save(directories, files)) {
        EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << result.status();
        EXPECT_THAT(std::string(result.status().message()),
                    HasSubstr(absl::StrCat("rank ", failing)));
        EXPECT_THAT(std::string(result.status().message()), HasSubstr("no name"));
      }
      for (size_t i = 0; i < directories.size(); ++i) {
        SCOPED_TRACE(directories[i]);
        EXPECT_EQ(ManifestIn(directories[i]), before[i]);
        const auto names = posix->ListDirectory(directories[i]);
        ASSERT_TRUE(names.ok()) << names.status();
        if (!had_one) {
          EXPECT_THAT(*names, IsEmpty());
          continue;
        }
        EXPECT_THAT(*names, ElementsAre("step-00000002"));
        EXPECT_TRUE(VerifyCheckpoint(JoinPath(directories[i], "step-00000002")).ok());
      }
    }
  }
}

TEST_F(MachinePartsTest, PartsOfTheSameStepAreReplacedOnAllMachines) {
  FileSystem* const posix = PosixFileSystem();
  const std::vector<std::string> directories = {own_ / "a", own_ / "b"};
  std::vector<std::string> before;
  for (int save = 0; save < 2; ++save) {
    for (const auto& result : Save(directories, {posix, posix})) {
      ASSERT_TRUE(result.ok()) << result.status();
    }
    std::vector<std::string> saves;
    for (const std::string& directory : directories) {
      EXPECT_THAT(*posix->ListDirectory(directory), ElementsAre("step-00000002"));
      EXPECT_NE(ManifestIn(directory), "");
      before.push_back(ManifestIn(directory));
      const auto manifest = ReadManifest(JoinPath(directory, "step-00000002"));
      ASSERT_TRUE(manifest.ok() && manifest->part.has_value()) << manifest.status();
      saves.push_back(manifest->part->save);
    }
    EXPECT_EQ(saves[0], saves[1]) << "of one save";
  }
  for (size_t i = 0; i < directories.size(); ++i) EXPECT_NE(before[i], before[2 + i]);
}

}  // namespace
}  // namespace megatrain
