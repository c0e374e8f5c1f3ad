// Checkpoints of tiles whose parts are held by several ranks, which are threads here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/comm/launch_environment.h"
#include "engine/comm/thread_communicator.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"
#include "tests/engine/checkpoint/held_parts.h"
#include "tests/engine/model/tile_parts.h"
#include "tests/fault/fault_injection_file_system.h"
#include "tests/support/counting_file_system.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PartsCheckpointTest : public ::testing::TestWithParam<Case> {
 protected:
  using Results = std::vector<absl::StatusOr<std::string>>;

  void SetUp() override {
    WriteConfigDirectory(files_, config_);
    whole_.Fill(7);
  }

  // Saves the whole tiles by one process.
  std::string SaveWhole(const std::string& directory, int64_t step) {
    auto writer = CheckpointWriter::Begin(directory, layout_, MakeState(layout_, dtype_, step),
                                          config_, files_);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < whole_.size(); ++i) {
      EXPECT_TRUE((*writer)->WriteTile(i, {whole_.tile(i)}).ok());
    }
    const auto path = (*writer)->Finish({});
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }

  // Saves the parts of `ranks` ranks, each through files(rank), and returns what each is told. A
  // rank for which lives(rank, tile) is false ends before it writes that tile.
  Results SaveParts(
      const std::string& directory, int64_t step, int ranks, const Parts::Cuts& cuts,
      const std::function<FileSystem*(int rank)>& files,
      const std::function<bool(int rank, int tile)>& lives = [](int, int) { return true; }) {
    Parts parts(layout_, dtype_, cuts);
    parts.Split(whole_);
    std::vector<CommunicatorSet> communicators =
        CreateThreadCommunicators(ranks, absl::Seconds(60));
    Retention retention;
    retention.keep = keep_;
    Results results(static_cast<size_t>(ranks), absl::UnknownError("not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<Communicator> own = std::move(communicators[rank].control);
        results[rank] = [&]() -> absl::StatusOr<std::string> {
          MT_ASSIGN_OR_RETURN(
              const std::unique_ptr<CheckpointWriter> writer,
              CheckpointWriter::Begin(directory, layout_, MakeState(layout_, dtype_, step),
                                      rank == 0 ? config_ : "", files(rank),
                                      AllInOneDirectory(own.get())));
          for (int i = 0; i < parts.size(); ++i) {
            const int tile = (i + rank) % parts.size();
            if (!lives(rank, tile)) return absl::CancelledError("died");
            writer->WriteTile(tile, {parts.part(tile, rank)}).IgnoreError();
          }
          return writer->Finish(retention);
        }();
        if (finished_) finished_(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  // Saves all parts of tiles in `ranks` parts by one process.
  std::string SavePartsOfOneProcess(const std::string& directory, int64_t step, int ranks,
                                    const Parts::Cuts& cuts) {
    Parts parts(layout_, dtype_, cuts);
    parts.Split(whole_);
    auto writer = CheckpointWriter::Begin(directory, layout_, MakeState(layout_, dtype_, step),
                                          config_, files_);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < parts.size(); ++i) {
      ProcessTile tile;
      for (int rank = 0; rank < ranks; ++rank) tile.push_back(parts.part(i, rank));
      EXPECT_TRUE((*writer)->WriteTile(i, tile).ok());
    }
    const auto path = (*writer)->Finish({});
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }

  Parts::Cuts Even(int ranks) const {
    return [ranks](int64_t elements) { return EvenCuts(elements, ranks); };
  }

  // Loads the checkpoint by `ranks` ranks, one after another.
  void ExpectLoads(const std::string& path, int ranks, const Parts::Cuts& cuts) {
    const Parts parts(layout_, dtype_, cuts);
    for (int i = 0; i < parts.size(); ++i) {
      for (int rank = 0; rank < ranks; ++rank) {
        const absl::Status loaded = LoadTile(path, layout_, i, parts.part(i, rank));
        ASSERT_TRUE(loaded.ok()) << loaded;
      }
    }
    parts.ExpectAre(whole_);
  }

  std::map<std::string, std::string> Content(const std::string& path) {
    std::map<std::string, std::string> content;
    const std::vector<std::string> names = *files_->ListDirectory(path);
    for (const std::string& name : names) {
      content[name] = *ReadWholeFile(files_, JoinPath(path, name), int64_t{1} << 30);
    }
    return content;
  }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory own_;
  const std::string config_ = own_ / "model", directory_ = own_ / "checkpoints";
  const DType dtype_ = std::get<1>(GetParam());
  const ModelLayout layout_ = LayoutOf(std::get<0>(GetParam()));
  TileSet whole_{layout_, dtype_};
  // Of SaveParts: how many checkpoints stay, and what a rank calls when it is told that it is done.
  int64_t keep_ = 5;
  std::function<void(int rank)> finished_;
};

// Calls `removes` before it removes a directory.
class RemovalFileSystem : public WatchedFileSystem {
 public:
  explicit RemovalFileSystem(std::function<void()> removes)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        removes_(std::move(removes)) {}
  absl::Status RemoveTree(const std::string& path) override {
    removes_();
    return WatchedFileSystem::RemoveTree(path);
  }

 private:
  const std::function<void()> removes_;
};

// A rank that is done may leave, and those that have left do not wait long for the others.
TEST_P(PartsCheckpointTest, NoRankIsDoneBeforeOldOnesAreDeleted) {
  SaveWhole(directory_, 1);
  std::promise<void> left;
  const std::future<void> has_left = left.get_future();
  finished_ = [&](int rank) {
    if (rank == 1) left.set_value();
  };
  keep_ = 1;
  int removals = 0;
  RemovalFileSystem first([&] {
    ++removals;
    EXPECT_EQ(has_left.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  });
  const Results results = SaveParts(directory_, 2, 2, Even(2), [&](int rank) -> FileSystem* {
    return rank == 0 ? &first : files_;
  });
  for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_GT(removals, 0);
  EXPECT_FALSE(files_->FileExists(JoinPath(directory_, "step-00000001")));
}

TEST_P(PartsCheckpointTest, RanksWriteTheFilesOfOneProcess) {
  const auto wanted = Content(SaveWhole(own_ / "whole", 1));
  std::mt19937_64 random(1);
  for (const int ranks : {1, 2, 3, 5}) {
    for (const bool even : {true, false}) {
      if (std::get<0>(GetParam()) == Kind::kLarge && even == (ranks % 2 == 1)) continue;
      SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
      const std::string directory = own_ / absl::StrCat(ranks, even ? "even" : "random");
      Parts::Cuts cuts = Even(ranks);
      if (!even) cuts = [&](int64_t elements) { return RandomCuts(elements, ranks, random); };
      const Results results = SaveParts(directory, 1, ranks, cuts, [&](int) { return files_; });
      for (const auto& result : results) {
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(*result, JoinPath(directory, "step-00000001"));
      }
      EXPECT_TRUE(VerifyCheckpoint(*results[0]).ok());
      EXPECT_TRUE(Content(*results[0]) == wanted);
    }
  }
}

TEST_P(PartsCheckpointTest, OneProcessWritesTheSameFilesFromParts) {
  const auto wanted = Content(SaveWhole(own_ / "whole", 1));
  std::mt19937_64 random(3);
  for (const int ranks : {2, 5}) {
    const std::string path = SavePartsOfOneProcess(
        own_ / absl::StrCat(ranks), 1, ranks,
        [&](int64_t elements) { return RandomCuts(elements, ranks, random); });
    EXPECT_TRUE(VerifyCheckpoint(path).ok());
    EXPECT_TRUE(Content(path) == wanted) << ranks << " parts";
  }
}

TEST_P(PartsCheckpointTest, AnyNumberOfRanksReadsIt) {
  const std::string path = SaveWhole(directory_, 1);
  std::mt19937_64 random(2);
  for (const int ranks : {1, 2, 3, 4}) {
    ExpectLoads(path, ranks, Even(ranks));
    ExpectLoads(path, ranks, [&](int64_t elements) { return RandomCuts(elements, ranks, random); });
  }
}

TEST_P(PartsCheckpointTest, OneWithoutHashesOfBlocksIsReadWhole) {
  const std::string path = SaveWhole(directory_, 1);
  Manifest manifest = *ReadManifest(path);
  for (ManifestFile& file : manifest.files) file.blocks.clear();
  const std::string text = SerializeManifest(manifest);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("blocks")));
  ASSERT_TRUE(WriteFileSynced(files_, JoinPath(path, kManifestFile), text).ok());
  ExpectLoads(path, 3, Even(3));
  // The last byte is the last rank's; the first rank sees it too.
  const std::string file = JoinPath(path, OptimizerFileName(0, layout_.tile_count()));
  std::string bytes = *ReadWholeFile(files_, file, int64_t{1} << 30);
  bytes.back() ^= 1;
  ASSERT_TRUE(WriteFileSynced(files_, file, bytes).ok());
  const Parts parts(layout_, dtype_, Even(3));
  EXPECT_EQ(LoadTile(path, layout_, 0, parts.part(0, 0)).code(), absl::StatusCode::kDataLoss);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PartsCheckpointTest,
                         ::testing::Combine(::testing::Values(Kind::kPlain, Kind::kFrozen,
                                                              Kind::kTied, Kind::kExperts),
                                            ::testing::Values(DType::kBF16, DType::kF32)),
                         [](const auto& info) { return CaseName(info.param); });

// Several blocks a file.
class LargePartsTest : public PartsCheckpointTest {};

TEST_P(LargePartsTest, RanksWriteTheFilesOfOneProcess) {
  const auto wanted = Content(SaveWhole(own_ / "whole", 1));
  const Results results = SaveParts(directory_, 1, 3, Even(3), [&](int) { return files_; });
  for (const auto& result : results) ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(Content(*results[0]) == wanted);
  ExpectLoads(*results[0], 2, Even(2));
}

TEST_P(LargePartsTest, APartIsReadAndVerifiedWithoutTheRest) {
  const std::string path = SaveWhole(directory_, 1);
  const Parts parts(layout_, dtype_, Even(8));
  CountingFileSystem files;
  const Manifest manifest = *ReadManifest(path);
  const auto load = [&](int rank) {
    return LoadCheckpointTile(path, manifest, layout_, 0, parts.part(0, rank), &files);
  };
  ASSERT_TRUE(load(3).ok());
  // Two headers, that of each file in a block; and a block more at each end of four sections.
  const int64_t part_bytes = TileBytes(parts.part(0, 3).held, dtype_);
  EXPECT_LT(files.read_bytes(), part_bytes + 10 * kHashBlockBytes + (1 << 16));
  EXPECT_LT(files.read_bytes(), manifest.total_bytes());
  // The last byte of the weights is the last rank's, the first of all the header's.
  const std::string file = JoinPath(path, WeightsFileName(0, layout_.tile_count()));
  const std::string bytes = *ReadWholeFile(files_, file, int64_t{1} << 30);
  for (const bool header : {false, true}) {
    std::string damaged = bytes;
    // A letter of a name of the metadata, which nothing else reads.
    damaged[header ? damaged.find("format") : damaged.size() - 1] ^= 1;
    ASSERT_TRUE(WriteFileSynced(files_, file, damaged).ok());
    EXPECT_EQ(load(3).code(), header ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
    const absl::Status seen = load(7);
    EXPECT_EQ(seen.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(seen.message()), AllOf(HasSubstr(file), HasSubstr("damaged")));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LargePartsTest,
                         ::testing::Combine(::testing::Values(Kind::kLarge),
                                            ::testing::Values(DType::kBF16)));

// What goes wrong at one rank.
class FailingRankTest : public PartsCheckpointTest {
 protected:
  void SetUp() override {
    PartsCheckpointTest::SetUp();
    good_ = SaveWhole(directory_, 1);
  }

  void ExpectOnlyTheGoodOne() {
    std::vector<DamagedCheckpoint> damaged;
    const auto found = FindNewestToLoad(directory_, &damaged);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->value_or(""), good_);
    EXPECT_TRUE(damaged.empty());
    EXPECT_TRUE(RemoveLeftovers(directory_).ok());
    EXPECT_THAT(*files_->ListDirectory(directory_), ElementsAre("step-00000001"));
    EXPECT_TRUE(VerifyCheckpoint(good_).ok());
  }

  std::string good_;
};

TEST_P(FailingRankTest, WhoseDiskFailsLeavesTheOlderCheckpoint) {
  int failures = 0;
  for (int64_t after = 0; after < 400; after += 1 + after / 4) {
    std::atomic<int64_t> operations = 0;
    WatchedFileSystem failing(files_, [&] {
      return ++operations > after ? DiskFullError("disk full: no room for a test")
                                  : absl::OkStatus();
    });
    const Results results = SaveParts(directory_, 2, 3, Even(3), [&](int rank) -> FileSystem* {
      return rank == 1 ? &failing : files_;
    });
    if (results[0].ok()) {
      for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(files_->RemoveTree(*results[0]).ok());
      break;
    }
    ++failures;
    for (const auto& result : results) {
      EXPECT_EQ(result.status(), results[0].status());
      EXPECT_TRUE(IsDiskFull(result.status())) << result.status();
      EXPECT_THAT(std::string(result.status().message()),
                  HasSubstr(absl::StrCat("rank 1 on ", HostName(), ": disk full")));
    }
    ExpectOnlyTheGoodOne();
  }
  EXPECT_GT(failures, 5);
}

TEST_P(FailingRankTest, ThatDiesLeavesTheOlderCheckpoint) {
  for (const int dead : {0, 2}) {
    const Results results = SaveParts(
        directory_, 2, 3, Even(3), [&](int) { return files_; },
        [&](int rank, int tile) { return rank != dead || tile != 1; });
    for (const auto& result : results) EXPECT_FALSE(result.ok());
    ExpectOnlyTheGoodOne();
  }
}

// A disk that keeps another byte than it was given.
class CorruptingFileSystem : public WatchedFileSystem {
 public:
  explicit CorruptingFileSystem(std::string name)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }),
        name_(std::move(name)) {}

  absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                           int64_t bytes) override {
    auto file = WatchedFileSystem::OpenBlockFile(path, bytes);
    if (!file.ok() || !absl::StrContains(path, name_)) return file;
    return std::make_unique<Blocks>(*std::move(file));
  }

 private:
  class Blocks : public BlockFile {
   public:
    explicit Blocks(std::unique_ptr<BlockFile> file) : file_(std::move(file)) {}
    absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
      const TransferBlock copy;
      std::memcpy(copy.data(), data, static_cast<size_t>(bytes));
      copy.data()[bytes / 2] ^= 1;
      return file_->Write(offset, copy.data(), bytes);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<BlockFile> file_;
  };
  const std::string name_;
};

TEST_P(FailingRankTest, WhoseBytesAreNotOnTheDiskIsNamed) {
  const std::string name = OptimizerFileName(1, layout_.tile_count());
  CorruptingFileSystem disk(name);
  const Results results = SaveParts(directory_, 2, 3, Even(3), [&](int rank) -> FileSystem* {
    return rank == 2 ? &disk : files_;
  });
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss) << result.status();
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr(name), HasSubstr("as it was written by rank")));
  }
  ExpectOnlyTheGoodOne();
}

TEST_P(FailingRankTest, WithADirectoryOfItsOwnIsTold) {
  FaultInjectionFileSystem other;
  const Results results = SaveParts(directory_, 2, 2, Even(2), [&](int rank) -> FileSystem* {
    return rank == 1 ? &other : files_;
  });
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition) << result.status();
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("rank 1"), HasSubstr("checkpoint.directory"), HasSubstr(directory_),
                      HasSubstr("is not shared")));
  }
  ExpectOnlyTheGoodOne();
}

TEST_P(FailingRankTest, PartsThatAreNotOfOneTileAreRefused) {
  const Results results = SaveParts(
      directory_, 2, 2,
      [](int64_t elements) {
        const int64_t first = std::min<int64_t>(128, elements);
        return std::vector<int64_t>{first, elements / 256 * 128, elements};
      },
      [&](int) { return files_; });
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal) << result.status();
  }
  ExpectOnlyTheGoodOne();
}

INSTANTIATE_TEST_SUITE_P(Layouts, FailingRankTest,
                         ::testing::Combine(::testing::Values(Kind::kPlain),
                                            ::testing::Values(DType::kBF16)));

}  // namespace
}  // namespace megatrain
