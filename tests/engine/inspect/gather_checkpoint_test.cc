// Checkpoints whose parts lie in a directory for each machine, and what becomes of them.
#include "engine/inspect/gather_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/directory_lock.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/comm/thread_communicator.h"
#include "engine/hf/hf_format.h"
#include "engine/inspect/export_checkpoint.h"
#include "engine/inspect/inspect_checkpoint.h"
#include "tests/engine/checkpoint/held_parts.h"
#include "tests/fault/fault_injection_file_system.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GatherCheckpointTest : public ::testing::TestWithParam<Case> {
 protected:
  using Machines = std::vector<std::string>;  // of each rank
  using Results = std::vector<absl::StatusOr<std::string>>;

  void SetUp() override {
    WriteConfigDirectory(files_, config_);
    whole_.Fill(7);
  }

  std::string DirectoryOf(const std::string& machine) const { return own_ / machine; }
  std::string PartOf(const std::string& machine, int64_t step = 1) const {
    return JoinPath(DirectoryOf(machine), StepDirectoryName(step));
  }

  // Saves the tiles by ranks on `machines`, each with a directory of its own. Rank r writes through
  // files(r).
  Results Save(const Machines& machines, int64_t step, const Parts::Cuts& cuts,
               const std::function<FileSystem*(int rank)>& files) {
    const auto count = static_cast<int>(machines.size());
    Parts parts(layout_, dtype_, cuts);
    parts.Split(whole_);
    std::vector<CommunicatorSet> communicators =
        CreateThreadCommunicators(count, absl::Seconds(60));
    Results results(machines.size(), absl::UnknownError("not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<Communicator> own = std::move(communicators[rank].control);
        results[rank] = [&]() -> absl::StatusOr<std::string> {
          MT_ASSIGN_OR_RETURN(DirectoryRanks ranks,
                              OneDirectoryForEachMachine(own.get(), machines));
          for (int i = 0; ranks.parts > 1 && i < parts.size(); ++i) {
            const HeldElements &first = parts.part(i, ranks.begin).held,
                               &last = parts.part(i, ranks.end - 1).held;
            ranks.held.push_back(
                {{first.state.begin, last.state.end}, {first.stateless.begin, last.stateless.end}});
          }
          MT_ASSIGN_OR_RETURN(
              const std::unique_ptr<CheckpointWriter> writer,
              CheckpointWriter::Begin(DirectoryOf(machines[rank]), layout_,
                                      MakeState(layout_, dtype_, step),
                                      ranks.leads() ? config_ : "", files(rank), ranks));
          for (int i = 0; i < parts.size(); ++i) {
            writer->WriteTile(i, {parts.part(i, rank)}).IgnoreError();
          }
          Retention retention;
          retention.keep = 5;
          absl::StatusOr<std::string> path = writer->Finish(retention);
          if (rank == 0) notes_ = writer->notes();
          return path;
        }();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  void SaveWell(const Machines& machines, int64_t step, const Parts::Cuts& cuts) {
    for (const auto& result : Save(machines, step, cuts, [&](int) { return files_; })) {
      ASSERT_TRUE(result.ok()) << result.status();
    }
  }
  static Parts::Cuts Even(size_t ranks) {
    return [ranks](int64_t elements) { return EvenCuts(elements, static_cast<int>(ranks)); };
  }

  std::map<std::string, std::string> Content(const std::string& path) {
    std::map<std::string, std::string> content;
    const std::vector<std::string> names = *ListHfDirectory(files_, path);
    for (const std::string& name : names) {
      content[name] = *ReadWholeFile(files_, JoinPath(path, name), int64_t{1} << 30);
    }
    return content;
  }
  static std::vector<ManifestFile> FilesOf(const std::string& path) {
    const absl::StatusOr<Manifest> manifest = ReadManifest(path);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return manifest.ok() ? manifest->files : std::vector<ManifestFile>();
  }
  // Those of a save by one process.
  std::map<std::string, std::string> WholeContent() {
    auto writer = CheckpointWriter::Begin(own_ / "one", layout_, MakeState(layout_, dtype_, 1),
                                          config_, files_);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < whole_.size(); ++i) {
      EXPECT_TRUE((*writer)->WriteTile(i, {whole_.tile(i)}).ok());
    }
    const auto path = (*writer)->Finish({});
    EXPECT_TRUE(path.ok()) << path.status();
    return Content(path.value_or(""));
  }

  FileSystem* const files_ = PosixFileSystem();
  const TestDirectory own_;
  const std::string config_ = own_ / "model";
  const DType dtype_ = std::get<1>(GetParam());
  const ModelLayout layout_ = LayoutOf(std::get<0>(GetParam()));
  TileSet whole_{layout_, dtype_};
  std::vector<std::string> notes_;  // those of rank 0 about its last save
};

TEST_P(GatherCheckpointTest, GatheredPartsAreTheFilesOfOneProcess) {
  const auto wanted = WholeContent();
  std::mt19937_64 random(1);
  int64_t step = 1;
  for (const Machines& machines :
       {Machines{"a", "b"}, Machines{"a", "a", "b"}, Machines{"a", "b", "b", "b", "c"}}) {
    const auto ranks = static_cast<int>(machines.size());
    for (const bool even : {true, false}) {
      for (const char* const machine : {"a", "b", "c", "whole"}) {
        ASSERT_TRUE(files_->RemoveTree(DirectoryOf(machine)).ok());
      }
      Parts::Cuts cuts = Even(machines.size());
      if (!even) cuts = [&](int64_t elements) { return RandomCuts(elements, ranks, random); };
      SaveWell(machines, step, cuts);
      std::vector<std::string> paths = {PartOf(machines.back()), PartOf("a")};
      if (machines.back() == "c") paths.push_back(PartOf("b"));
      int64_t bytes = 0;
      for (const std::string& path : paths) {
        EXPECT_TRUE(VerifyCheckpoint(path).ok());
        for (const ManifestFile& file : FilesOf(path)) {
          if (file.name.ends_with(kPartSuffix)) bytes += file.bytes;
        }
      }
      const auto gathered = GatherCheckpoint(paths, DirectoryOf("whole"));
      ASSERT_TRUE(gathered.ok()) << gathered.status();
      EXPECT_EQ(*gathered, PartOf("whole"));
      EXPECT_TRUE(Content(*gathered) == wanted);
      // Nothing but the headers is in two parts.
      int64_t whole_bytes = 0;
      for (const ManifestFile& file : FilesOf(*gathered)) {
        if (!file.blocks.empty()) whole_bytes += file.bytes;
      }
      EXPECT_LT(bytes, whole_bytes + static_cast<int64_t>(paths.size()) * layout_.tile_count() *
                                         (int64_t{1} << 14));
    }
  }
}

TEST_P(GatherCheckpointTest, AMachineReadsItsPartAndNoOther) {
  SaveWell({"a", "a", "b"}, 1, Even(3));
  const Parts parts(layout_, dtype_, Even(3));
  for (int tile = 0; tile < parts.size(); ++tile) {
    for (const int rank : {0, 1, 2}) {
      const std::string path = PartOf(rank < 2 ? "a" : "b");
      const absl::Status loaded = LoadTile(path, layout_, tile, parts.part(tile, rank));
      ASSERT_TRUE(loaded.ok()) << loaded;
    }
  }
  parts.ExpectAre(whole_);
  for (const auto& [machine, rank] : {std::pair("b", 0), std::pair("a", 2)}) {
    const absl::Status refused = LoadTile(PartOf(machine), layout_, 1, parts.part(1, rank));
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(PartOf(machine)), HasSubstr("of 2"),
                                                      HasSubstr("megatraind gather")));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, GatherCheckpointTest,
                         ::testing::Combine(::testing::Values(Kind::kPlain, Kind::kFrozen,
                                                              Kind::kTied, Kind::kExperts,
                                                              Kind::kLarge),
                                            ::testing::Values(DType::kBF16, DType::kF32)),
                         [](const auto& info) { return CaseName(info.param); });

// Refusals, with one layout: they do not depend on it.
class GatherRefusalTest : public GatherCheckpointTest {
 protected:
  void ExpectRefused(const std::vector<std::string>& parts, absl::StatusCode code,
                     const std::vector<std::string>& words) {
    const auto gathered = GatherCheckpoint(parts, DirectoryOf("whole"));
    EXPECT_EQ(gathered.status().code(), code) << gathered.status();
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(gathered.status().message()), HasSubstr(word));
    }
    EXPECT_FALSE(files_->FileExists(PartOf("whole")));
    EXPECT_FALSE(files_->FileExists(PartOf("whole") + kUnfinishedSuffix));
  }
};

TEST_P(GatherRefusalTest, PartsThatDoNotMakeACheckpointAreNamed) {
  const Machines machines = {"a", "b", "c"};
  SaveWell(machines, 1, Even(3));
  SaveWell(machines, 2, Even(3));
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused({PartOf("a"), PartOf("b")}, kInvalid, {"part 3 of 3 is not given"});
  ExpectRefused({PartOf("c"), PartOf("b")}, kInvalid, {"part 1 of 3 is not given"});
  ExpectRefused({PartOf("a"), PartOf("b"), PartOf("b"), PartOf("c")}, kInvalid,
                {PartOf("b"), "both part 2 of 3"});
  ExpectRefused({PartOf("a"), PartOf("b", 2), PartOf("c")}, kInvalid,
                {PartOf("b", 2), "(step 2)", "not of one save"});
  WholeContent();
  ExpectRefused({PartOf("a"), PartOf("one")}, kInvalid, {PartOf("one"), "no part"});
  ExpectRefused({PartOf("a"), PartOf("nowhere")}, absl::StatusCode::kNotFound, {"nowhere"});
}

// Its tensors have other names, which are as long.
TEST_P(GatherRefusalTest, APartOfAnotherModelDoesNotLoad) {
  SaveWell({"a", "b"}, 1, Even(2));
  ModelDescription model = layout_.model;
  model.layers[0].attention_norms.norm = "INPUT_layernorm";
  const ModelLayout other = BuildModelLayout(model);
  const Parts parts(other, dtype_, Even(2)), own(layout_, dtype_, Even(2));
  const absl::Status refused = LoadTile(PartOf("a"), other, 1, parts.part(1, 0));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another model"));
  EXPECT_TRUE(LoadTile(PartOf("a"), layout_, 1, own.part(1, 0)).ok());
}

TEST_P(GatherRefusalTest, APartIsNoModelAndIsNotGatheredInItsOwnDirectory) {
  SaveWell({"a", "b"}, 1, Even(2));
  const absl::Status exported = ExportCheckpoint(PartOf("a"), own_ / "out");
  EXPECT_EQ(exported.code(), absl::StatusCode::kFailedPrecondition) << exported;
  EXPECT_THAT(std::string(exported.message()), HasSubstr("part 1 of 2"));
  const auto gathered = GatherCheckpoint({PartOf("a"), PartOf("b")}, DirectoryOf("b"));
  EXPECT_EQ(gathered.status().code(), absl::StatusCode::kInvalidArgument) << gathered.status();
  EXPECT_TRUE(VerifyCheckpoint(PartOf("b")).ok());
  const auto report = InspectCheckpoint(PartOf("b"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->text, HasSubstr("2 of 2"));
  const CheckpointState state = MakeState(layout_, dtype_, 1);
  const auto& entry = report->json["checkpoint"];
  EXPECT_EQ(entry["part"]["number"], 2);
  EXPECT_EQ(entry["part"]["of"], 2);
  EXPECT_EQ(entry["step"], 1);
  EXPECT_EQ(entry["steps_total"], state.steps_total);
  EXPECT_EQ(entry["data_position"], state.data_position);
  EXPECT_EQ(entry["seed"], state.seed);
}

TEST_P(GatherRefusalTest, ADamagedPartIsFound) {
  SaveWell({"a", "b"}, 1, Even(2));
  const std::string name = OptimizerFileName(1, layout_.tile_count()) + kPartSuffix;
  const std::string file = JoinPath(PartOf("b"), name);
  const std::string bytes = *ReadWholeFile(files_, file, int64_t{1} << 30);
  // A byte of the header, which is taken from the other part, and one of the content.
  for (const size_t place : {size_t{20}, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[place] ^= 1;
    ASSERT_TRUE(WriteFileSynced(files_, file, damaged).ok());
    ExpectRefused({PartOf("a"), PartOf("b")}, absl::StatusCode::kDataLoss, {file, "damaged"});
  }
  ASSERT_TRUE(WriteFileSynced(files_, file, bytes.substr(0, bytes.size() - 1)).ok());
  ExpectRefused({PartOf("a"), PartOf("b")}, absl::StatusCode::kDataLoss, {file});
  ASSERT_TRUE(WriteFileSynced(files_, file, bytes + "x").ok());
  ExpectRefused({PartOf("a"), PartOf("b")}, absl::StatusCode::kDataLoss, {file, "damaged"});
}

// Such a file is taken from the first part.
TEST_P(GatherRefusalTest, ADamagedFileBesideTheTilesIsFound) {
  SaveWell({"a", "b"}, 1, Even(2));
  const std::string file = JoinPath(PartOf("a"), "tokenizer.json");
  const std::string bytes = *ReadWholeFile(files_, file, int64_t{1} << 30);
  std::string other = bytes;
  other[1] ^= 1;
  for (const std::string& damaged : {other, bytes + "x"}) {
    ASSERT_TRUE(WriteFileSynced(files_, file, damaged).ok());
    ExpectRefused({PartOf("a"), PartOf("b")}, absl::StatusCode::kDataLoss, {file, "damaged"});
  }
  ASSERT_TRUE(WriteFileSynced(files_, file, bytes).ok());
  EXPECT_TRUE(GatherCheckpoint({PartOf("a"), PartOf("b")}, DirectoryOf("whole")).ok());
}

TEST_P(GatherRefusalTest, AnExistingCheckpointStays) {
  SaveWell({"a", "b"}, 1, Even(2));
  ASSERT_TRUE(GatherCheckpoint({PartOf("a"), PartOf("b")}, DirectoryOf("whole")).ok());
  const auto again = GatherCheckpoint({PartOf("a"), PartOf("b")}, DirectoryOf("whole"));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition) << again.status();
  EXPECT_TRUE(VerifyCheckpoint(PartOf("whole")).ok());
}

TEST_P(GatherRefusalTest, ADirectoryThatARunHoldsIsLeftAlone) {
  SaveWell({"a", "b"}, 1, Even(2));
  const auto lock = LockDirectory(DirectoryOf("whole"), files_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  ExpectRefused({PartOf("a"), PartOf("b")}, absl::StatusCode::kFailedPrecondition,
                {DirectoryOf("whole"), "another process is training into it"});
}

TEST_P(GatherRefusalTest, AMachineWhoseDiskFailsLeavesTheOlderPartsOfAll) {
  SaveWell({"a", "b", "b"}, 1, Even(3));
  int failures = 0;
  for (int64_t after = 0; after < 400; after += 1 + after / 4) {
    int64_t operations = 0;
    std::mutex mutex;
    WatchedFileSystem failing(files_, [&] {
      std::lock_guard<std::mutex> lock(mutex);
      return ++operations > after ? DiskFullError("disk full: no room for a test")
                                  : absl::OkStatus();
    });
    const Results results = Save({"a", "b", "b"}, 2, Even(3), [&](int rank) -> FileSystem* {
      return rank == 1 ? &failing : files_;
    });
    if (results[0].ok()) break;
    ++failures;
    for (const auto& result : results) EXPECT_EQ(result.status(), results[0].status());
    for (const char* const machine : {"a", "b"}) {
      EXPECT_TRUE(VerifyCheckpoint(PartOf(machine)).ok());
      ASSERT_TRUE(RemoveLeftovers(DirectoryOf(machine)).ok());
    }
    // A machine gives a name back that the other one could not give.
    EXPECT_FALSE(files_->FileExists(PartOf("a", 2)));
    ASSERT_TRUE(files_->RemoveTree(PartOf("b", 2)).ok());
  }
  EXPECT_GT(failures, 5);
  EXPECT_TRUE(GatherCheckpoint({PartOf("b", 2), PartOf("a", 2)}, DirectoryOf("whole")).ok());
}

// A file system with a disk of which so much is free.
class FreeBytesFileSystem : public WatchedFileSystem {
 public:
  FreeBytesFileSystem(FileSystem* base, int64_t bytes)
      : WatchedFileSystem(base, [] { return absl::OkStatus(); }), bytes_(bytes) {}
  absl::StatusOr<int64_t> FreeDiskBytes(const std::string&) override { return bytes_; }

 private:
  const int64_t bytes_;
};

TEST_P(GatherRefusalTest, AMachineNeedsRoomForItsPartOnly) {
  const int64_t whole = CheckpointWriter::EstimateBytes(layout_, dtype_);
  FreeBytesFileSystem enough(files_, whole * 3 / 4), little(files_, whole / 4);
  for (const auto& result : Save({"a", "b"}, 1, Even(2), [&](int) { return &enough; })) {
    EXPECT_TRUE(result.ok()) << result.status();
  }
  for (const auto& result : Save({"a", "b"}, 2, Even(2), [&](int) { return &little; })) {
    EXPECT_TRUE(IsDiskFull(result.status())) << result.status();
  }
}

TEST_P(GatherRefusalTest, RanksThatDoNotFollowEachOtherAreRefused) {
  const Results results = Save({"a", "b", "a"}, 1, Even(3), [&](int) { return files_; });
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition) << result.status();
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("checkpoint.shared"), HasSubstr("rank 2")));
  }
}

TEST_P(GatherRefusalTest, TheFirstRankHearsTheNotesOfOtherMachines) {
  const std::string leftover = PartOf("b", 9) + kUnfinishedSuffix;
  ASSERT_TRUE(files_->CreateDirectories(leftover).ok());
  SaveWell({"a", "b"}, 1, Even(2));
  EXPECT_THAT(notes_,
              ::testing::Contains(AllOf(HasSubstr("rank 1"), HasSubstr("removed " + leftover))));
}

INSTANTIATE_TEST_SUITE_P(Layouts, GatherRefusalTest,
                         ::testing::Combine(::testing::Values(Kind::kPlain),
                                            ::testing::Values(DType::kBF16)));

TEST_P(GatherRefusalTest, WhatWasGatheredOutlivesAPowerCut) {
  const std::string templates = JoinPath(config_, kHfTemplatesDirectory);
  ASSERT_TRUE(files_->CreateDirectories(templates).ok());
  ASSERT_TRUE(WriteFileSynced(files_, JoinPath(templates, "rag.jinja"), "rag").ok());
  SaveWell({"a", "b"}, 1, Even(2));
  FaultInjectionFileSystem disk;
  for (const std::string machine : {"a", "b"}) {
    for (const auto& [name, content] : Content(PartOf(machine))) {
      disk.WriteFile("/" + machine + "/step-00000001/" + name, content);
    }
  }
  disk.WriteFile("/whole/.keep", "");
  disk.SyncAll();
  const auto path = GatherCheckpoint({"/a/step-00000001", "/b/step-00000001"}, "/whole", &disk);
  ASSERT_TRUE(path.ok()) << path.status();
  disk.Restart(FaultInjectionFileSystem::Loss::kDataAndNames);
  const absl::Status status = VerifyCheckpoint(*path, &disk);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(disk.FileExists(*path + "/additional_chat_templates/rag.jinja"));
}

TEST_P(GatherRefusalTest, AFullDiskIsSeenBeforeAnythingIsGathered) {
  constexpr int64_t kCommon = int64_t{1} << 20;  // bytes of a file that all parts have
  const std::string common = JoinPath(config_, "tokenizer.json");
  ASSERT_TRUE(WriteFileSynced(files_, common, std::string(kCommon, ' ')).ok());
  SaveWell({"a", "b"}, 1, Even(2));
  FaultInjectionFileSystem disk;
  int64_t needed = 0;
  for (const std::string machine : {"a", "b"}) {
    for (const auto& [name, content] : Content(PartOf(machine))) {
      disk.WriteFile("/" + machine + "/step-00000001/" + name, content);
    }
    for (const ManifestFile& file : FilesOf(PartOf(machine))) {
      if (machine == "a" || file.name.ends_with(kPartSuffix)) needed += file.bytes;
    }
  }
  disk.WriteFile("/whole/.keep", "");
  disk.set_capacity_bytes(0);
  const int64_t used = -*disk.FreeDiskBytes("/whole");
  const auto gather = [&](int64_t free) {
    disk.set_capacity_bytes(used + free);
    return GatherCheckpoint({"/a/step-00000001", "/b/step-00000001"}, "/whole", &disk).status();
  };
  const absl::Status full = gather(needed - 1);
  EXPECT_TRUE(IsDiskFull(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("the checkpoint needs"));
  EXPECT_FALSE(disk.FileExists("/whole/step-00000001.tmp"));
  EXPECT_EQ(gather(needed + kCommon / 2), absl::OkStatus()) << "with room for the manifest";
}

}  // namespace
}  // namespace megatrain
