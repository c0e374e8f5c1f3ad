// NcclCommunicator over a fake NCCL and emulated GPUs; no GPU has run it.
#include "engine/comm/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/comm/thread_communicator.h"
#include "engine/device/cuda/cuda_device.h"
#include "tests/engine/comm/communicator_checks.h"
#include "tests/engine/comm/fake_nccl.h"
#include "tests/engine/comm/nccl_ranks.h"
#include "tests/engine/device/cuda/emulated_cuda.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Longer than any test waits: what ends earlier was ended by something else.
constexpr absl::Duration kLong = absl::Hours(1);

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void MakeRanks(int ranks, bool own_gpus = true) {
    ranks_.clear();
    nccl_.clear();
    for (int i = 0; i < ranks; ++i) {
      EmulatedCudaOptions options;
      options.properties.uuid = absl::StrCat("GPU-", own_gpus ? i : 0);
      auto nccl = std::make_unique<FakeNccl>();
      nccl_.push_back(nccl.get());
      ranks_.push_back(*NcclRank::Create(
          *CreateCudaDevice(std::make_unique<EmulatedCuda>(options), 0), std::move(nccl)));
    }
    sets_ = CreateThreadCommunicators(ranks, kLong);
  }

  std::vector<absl::Status> OnEachRank(const std::function<absl::Status(int)>& body,
                                       const NcclPatience& patience = {kLong, kLong},
                                       int64_t scratch_bytes = 4096, int group_ranks = 1) {
    return OnEachNcclRank(ranks_, sets_, scratch_bytes, patience, body, group_ranks);
  }

  FakeNccl& nccl(int rank) { return *nccl_[static_cast<size_t>(rank)]; }
  NcclRank& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  // Gathers with all, and waits for the GPU. Returns the first cause.
  absl::Status Gather(int of) {
    const std::vector<char> content(400);
    void* const data = rank(of).Buffers().make(content);
    const std::vector<int64_t> cuts = {0, 200, 400};
    MT_RETURN_IF_ERROR(rank(of).communicator().AllGather(rank(of).stream(), data, cuts));
    MT_RETURN_IF_ERROR(rank(of).Synchronize());
    return rank(of).communicator().status();
  }

  std::vector<std::unique_ptr<NcclRank>> ranks_;
  std::vector<FakeNccl*> nccl_;  // of the ranks
  std::vector<CommunicatorSet> sets_;
};

TEST_F(NcclCommunicatorTest, OperationsGiveTheSameBitsForAnyNumberOfRanks) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (const int ranks : {1, 2, 3, 4}) {
    MakeRanks(ranks);
    for (const absl::Status& status : OnEachRank([&](int of) {
           return CheckOperations(rank(of).communicator(), rank(of).stream(), rank(of).Buffers(),
                                  seed, 7'003, {.reductions = ranks - 1});
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_THAT(nccl(0).calls(), Not(Contains("Abort")));
    EXPECT_EQ(nccl(0).calls().back(), "Destroy");
  }
}

TEST_F(NcclCommunicatorTest, TwoLevelsGiveTheSameBitsAndLessTrafficBetweenMachines) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (const auto& [ranks, group_ranks] :
       std::vector<std::pair<int, int>>{{3, 3}, {4, 2}, {6, 2}, {8, 4}, {8, 2}}) {
    MakeRanks(ranks);
    const int outside = ranks / group_ranks - 1;
    for (const absl::Status& status : OnEachRank(
             [&](int of) {
               return CheckOperations(rank(of).communicator(), rank(of).stream(),
                                      rank(of).Buffers(), seed, 7'003, {.reductions = outside});
             },
             {kLong, kLong}, /*scratch_bytes=*/4096, group_ranks)) {
      EXPECT_TRUE(status.ok()) << ranks << " ranks, groups of " << group_ranks << ": " << status;
    }
  }
}

TEST_F(NcclCommunicatorTest, TwoLevelsMoveDifferentPiecesAtOnce) {
  MakeRanks(4);
  for (const absl::Status& status : OnEachRank(
           [&](int of) {
             const std::vector<char> content(320 * sizeof(float));
             void* const data = rank(of).Buffers().make(content);
             MT_RETURN_IF_ERROR(rank(of).communicator().ReduceScatter(
                 rank(of).stream(), static_cast<float*>(data), {0, 80, 160, 240, 320}));
             return rank(of).Synchronize();
           },
           {kLong, kLong}, /*scratch_bytes=*/768, /*group_ranks=*/2)) {
    EXPECT_TRUE(status.ok()) << status;
  }
  // Rank 0 sums the parts 0 and 2 of its group's ranks 0 and 1, and part 0 with rank 2.
  EXPECT_THAT(nccl(0).calls(),
              ElementsAre("MakeId", "Initialize",                                         //
                          "GroupStart", "Receive 256 from 1", "Send 256 to 1",            //
                          "Receive 256 from 1", "Send 256 to 1", "GroupEnd",              //
                          "GroupStart", "Receive 64 from 1", "Send 64 to 1",              //
                          "Receive 64 from 1", "Send 64 to 1",                            //
                          "Receive 256 from 2", "Send 256 to 2", "GroupEnd",              //
                          "GroupStart", "Receive 64 from 2", "Send 64 to 2", "GroupEnd",  //
                          "Finalize", "Destroy"));
}

TEST_F(NcclCommunicatorTest, AnErrorInTwoLevelsReachesAllRanks) {
  MakeRanks(4);
  nccl(3).Fail("Send", 3, /*after=*/2);
  for (const absl::Status& status : OnEachRank(
           [&](int of) -> absl::Status {
             void* const data = rank(of).Buffers().make(std::vector<char>(4000));
             while (rank(of).communicator().status().ok()) {
               (void)rank(of).communicator().ReduceScatter(
                   rank(of).stream(), static_cast<float*>(data), {0, 250, 500, 750, 1000});
               (void)rank(of).Synchronize();
             }
             return rank(of).communicator().status();
           },
           {kLong, kLong}, /*scratch_bytes=*/4096, /*group_ranks=*/2)) {
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3: "));
  }
}

TEST_F(NcclCommunicatorTest, PartsAreMovedInPiecesThatFitIntoTheScratch) {
  MakeRanks(2);
  for (const absl::Status& status : OnEachRank(
           [&](int of) {
             const std::vector<char> content(300 * sizeof(float));
             void* const data = rank(of).Buffers().make(content);
             MT_RETURN_IF_ERROR(rank(of).communicator().ReduceScatter(
                 rank(of).stream(), static_cast<float*>(data), {0, 100, 300}));
             return rank(of).Synchronize();
           },
           {kLong, kLong}, /*scratch_bytes=*/512)) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_THAT(nccl(0).calls(),
              ElementsAre("MakeId", "Initialize",  //
                          "GroupStart", "Receive 400 from 1", "Send 512 to 1", "GroupEnd",
                          "GroupStart", "Send 288 to 1", "GroupEnd",  //
                          "Finalize", "Destroy"));
}

TEST_F(NcclCommunicatorTest, EqualPartsAreGatheredInOneCallAndOthersByBroadcasts) {
  MakeRanks(2);
  for (const absl::Status& status : OnEachRank([&](int of) {
         MT_RETURN_IF_ERROR(Gather(of));
         const std::vector<char> content(400);
         void* const data = rank(of).Buffers().make(content);
         MT_RETURN_IF_ERROR(
             rank(of).communicator().AllGather(rank(of).stream(), data, {100, 150, 400}));
         return rank(of).Synchronize();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_THAT(nccl(1).calls(),
              ElementsAre("Initialize",                                                 //
                          "GroupStart", "AllGather 200", "GroupEnd",                    //
                          "GroupStart", "Broadcast 50 from 0", "Broadcast 250 from 1",  //
                          "GroupEnd", "Finalize", "Destroy"));
}

TEST_F(NcclCommunicatorTest, AnErrorOfAnyCallReachesAllRanks) {
  for (const char* method :
       {"MakeId", "Initialize", "GroupStart", "AllGather", "GroupEnd", "AsyncError", "Operation"}) {
    MakeRanks(2);
    nccl(0).Fail(method, 3);
    for (const absl::Status& status : OnEachRank([&](int of) {
           // Rank 1 waits on the GPU for rank 0, or rank 0's operation is under way as long as it
           // is to fail.
           while (of == 1 && std::string(method) == "Operation" &&
                  rank(of).communicator().status().ok()) {
             std::this_thread::sleep_for(std::chrono::milliseconds(1));
           }
           return Gather(of);
         })) {
      EXPECT_TRUE(absl::IsInternal(status)) << method << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0: ")) << method;
      EXPECT_THAT(std::string(status.message()), HasSubstr("fake error 3")) << method;
    }
    EXPECT_THAT(nccl(1).calls(), Not(Contains("Destroy"))) << method;
  }
}

TEST_F(NcclCommunicatorTest, ARankThatDoesNotComeEndsTheOthersByTheDeadline) {
  MakeRanks(2);
  const std::vector<absl::Status> results = OnEachRank(
      [&](int of) {
        if (of == 0) return Gather(of);
        while (rank(of).communicator().status().ok()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return rank(of).communicator().status();
      },
      {.meeting = kLong, .operation = absl::Milliseconds(50)});
  for (const absl::Status& status : results) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 0 waited 50ms for other ranks in AllGather of 400 bytes"));
  }
  EXPECT_THAT(nccl(0).calls(), Contains("Abort"));
}

TEST_F(NcclCommunicatorTest, ARankThatDoesNotInitializeEndsTheOthersByTheDeadline) {
  MakeRanks(2);
  // As if it never came further than the bootstrap.
  nccl(0).network().initialized = -1;
  // As in training, where an operation may take any time.
  for (const absl::Status& status :
       OnEachRank([](int) { return absl::OkStatus(); },
                  {.meeting = absl::Milliseconds(50), .operation = absl::InfiniteDuration()})) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("waited 50ms for other ranks in NCCL, making a communicator"));
  }
}

TEST_F(NcclCommunicatorTest, AnAbortOfAnotherCommunicatorFreesTheStreams) {
  MakeRanks(2);
  const absl::Status cause = absl::DataLossError("the disk of rank 1 is gone");
  for (const absl::Status& status : OnEachRank([&](int of) {
         if (of == 0) return Gather(of);
         sets_[1].control->Abort(cause);
         return Gather(of);
       })) {
    EXPECT_EQ(status, cause);
  }
}

TEST_F(NcclCommunicatorTest, TwoRanksOnOneGpuAreRefused) {
  MakeRanks(2, /*own_gpus=*/false);
  for (const absl::Status& status : OnEachRank([](int) { return absl::OkStatus(); })) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ranks 0 and 1 have the same GPU"));
  }
}

TEST_F(NcclCommunicatorTest, ScratchThatIsTooSmallIsRefused) {
  MakeRanks(3);
  EXPECT_EQ(NcclScratchBytesMin(3), 512);
  EXPECT_GE(NcclScratchBytes(3), NcclScratchBytesMin(3));
  EXPECT_EQ(NcclScratchBytes(1), 0);
  for (const absl::Status& status :
       OnEachRank([](int) { return absl::OkStatus(); }, {kLong, kLong}, /*scratch_bytes=*/511)) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST_F(NcclCommunicatorTest, ScratchOfAnotherSizeOnAnotherRankIsRefused) {
  MakeRanks(2);
  std::vector<absl::Status> results(2);
  std::vector<std::thread> threads;
  for (int of = 0; of < 2; ++of) {
    threads.emplace_back([&, of] {
      const int64_t bytes = 4096 + 256 * of;
      const auto scratch = rank(of).device().Allocate(bytes);
      ASSERT_TRUE(scratch.ok()) << scratch.status();
      results[of] =
          CreateNcclCommunicator(std::move(sets_[of].tiles), &nccl(of), &rank(of).device(),
                                 (*scratch)->data(), bytes, {kLong, kLong}, /*group_ranks=*/1)
              .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : results) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("all ranks must run the same plan"));
  }
}

TEST(NcclLibraryTest, IsLoadedOrRefusedWithWhatToDo) {
  const auto nccl = LoadNccl();
  if (nccl.ok()) {
    EXPECT_THAT((*nccl)->Describe(2), HasSubstr("NCCL's error 2 ("));
    EXPECT_THAT((*nccl)->Library(), ContainsRegex("^2\\.[0-9]+\\.[0-9]+ \\(.*libnccl.so.2"));
  } else {
    EXPECT_TRUE(absl::IsUnavailable(nccl.status()) || absl::IsUnimplemented(nccl.status()))
        << nccl.status();
    EXPECT_THAT(std::string(nccl.status().message()), HasSubstr("nccl"));
  }
}

}  // namespace
}  // namespace megatrain
