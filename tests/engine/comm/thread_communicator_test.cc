#include "engine/comm/thread_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "tests/engine/comm/communicator_checks.h"

namespace megatrain {
namespace {

using Sets = std::vector<CommunicatorSet>;

// Longer than any test waits: what ends earlier was ended by something else.
constexpr absl::Duration kLong = absl::Hours(1);

// Runs `body` for each rank, in a thread of its own. Returns what the ranks returned.
std::vector<absl::Status> OnEachRank(
    Sets* sets, const std::function<absl::Status(int, CommunicatorSet&)>& body) {
  std::vector<absl::Status> results(sets->size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < sets->size(); ++rank) {
    threads.emplace_back(
        [&, rank] { results[rank] = body(static_cast<int>(rank), (*sets)[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(ThreadCommunicatorTest, OperationsGiveTheSameBitsForAnyNumberOfRanks) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (const int ranks : {1, 2, 3, 4, 7}) {
    Sets sets = CreateThreadCommunicators(ranks, kLong);
    for (const absl::Status& status : OnEachRank(&sets, [&](int, CommunicatorSet& set) {
           ImmediateStream stream;
           return CheckOperations(*set.tiles, stream, HostBuffers(), seed, 100'003);
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST(ThreadCommunicatorTest, CommunicatorsOfASetWorkAtOnce) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Sets sets = CreateThreadCommunicators(3, kLong);
  for (const absl::Status& status : OnEachRank(&sets, [&](int, CommunicatorSet& set) {
         absl::Status tiles;
         std::thread lane([&] {
           ImmediateStream stream;
           tiles = CheckOperations(*set.tiles, stream, HostBuffers(), seed, 5000);
         });
         absl::Status values;
         for (int i = 0; i < 300; ++i) values.Update(set.values->GatherValues({1.0}).status());
         lane.join();
         tiles.Update(values);
         return tiles;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(ThreadCommunicatorTest, ARankThatDoesNotComeIsNamed) {
  Sets sets = CreateThreadCommunicators(4, absl::Milliseconds(20));
  for (const absl::Status& status : OnEachRank(&sets, [](int rank, CommunicatorSet&set) {
         return rank % 2 == 1 ? absl::OkStatus() : set.control->Barrier();
       })) {
    if (status.ok()) continue;
    EXPECT_TRUE(absl::IsDeadlineExceeded(status));
    EXPECT_NE(status.message().find("for ranks 1, 3 in Barrier"), std::string::npos) << status;
  }
  // From then on every operation of every rank has the same error.
  const absl::Status cause = sets[1].tiles->status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(cause)) << cause;
  EXPECT_EQ(sets[1].tiles->Barrier(), cause);
  EXPECT_EQ(sets[3].values->GatherValues({}).status(), cause);
}

TEST(ThreadCommunicatorTest, AnAbortEndsAllRanksWithTheFirstCause) {
  Sets sets = CreateThreadCommunicators(3, kLong);
  const absl::Status cause = absl::DataLossError("the disk of rank 2 is gone");
  for (const absl::Status& status : OnEachRank(&sets, [&](int rank, CommunicatorSet&set) {
         if (rank != 2) return set.values->Barrier();
         set.control->Abort(cause);
         set.control->Abort(absl::InternalError("later"));
         return set.control->Barrier();
       })) {
    EXPECT_EQ(status, cause);
  }
}

TEST(ThreadCommunicatorTest, ARankThatLeavesEndsThoseThatWait) {
  Sets sets = CreateThreadCommunicators(3, kLong);
  for (const absl::Status& status : OnEachRank(&sets, [](int rank, CommunicatorSet&set) {
         if (rank != 1) return set.tiles->Barrier();
         set = {};
         return absl::UnavailableError("has left");
       })) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
  EXPECT_NE(sets[0].tiles->status().message().find("rank 1 ended"), std::string::npos)
      << sets[0].tiles->status();
}

TEST(ThreadCommunicatorTest, ARankMayLeaveAfterTheLastOperation) {
  for (int i = 0; i < 100; ++i) {
    Sets sets = CreateThreadCommunicators(3, kLong);
    for (const absl::Status& status : OnEachRank(&sets, [](int, CommunicatorSet& set) {
           const absl::Status done = set.tiles->Barrier();
           set = {};
           return done;
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// The memory of a rank is free as soon as its operation has returned, with or without an error.
TEST(ThreadCommunicatorTest, AnAbortDuringOperationsLeavesNobodyReading) {
  for (int i = 0; i < 20; ++i) {
    Sets sets = CreateThreadCommunicators(3, kLong);
    std::atomic<int> operations = 0;
    const absl::Status cause = absl::CancelledError("enough");
    for (const absl::Status& status : OnEachRank(&sets, [&](int rank, CommunicatorSet&set) {
           ImmediateStream stream;
           while (true) {
             std::vector<float> data(30'000, 1.0f);
             const absl::Status done =
                 set.tiles->ReduceScatter(stream, data.data(), {0, 9'000, 21'000, 30'000});
             if (!done.ok()) return done;
             if (++operations > 20 + i && rank == 1) set.control->Abort(cause);
           }
         })) {
      EXPECT_EQ(status, cause);
    }
  }
}

TEST(ThreadCommunicatorTest, CallsThatDifferAreRefused) {
  std::vector<float> data(100);
  ImmediateStream stream;
  const std::vector<std::function<absl::Status(CommunicatorSet&)>> calls = {
      [](CommunicatorSet& set) { return set.tiles->Barrier(); },
      [&](CommunicatorSet& set) {
        return set.tiles->AllGather(stream, data.data(), {0, 50, 100});
      },
      [&](CommunicatorSet& set) {
        return set.tiles->AllGather(stream, data.data(), {0, 40, 100});
      },
      [&](CommunicatorSet& set) {
        return set.tiles->ReduceScatter(stream, data.data(), {0, 5, 25});
      },
      [&](CommunicatorSet& set) { return set.tiles->Broadcast(data.data(), 100, 0); },
      [&](CommunicatorSet& set) { return set.tiles->Broadcast(data.data(), 100, 1); },
      [](CommunicatorSet& set) {
        return set.tiles->GatherValues({1.0, 2.0}).status();
      },
  };
  for (size_t a = 0; a < calls.size(); ++a) {
    for (size_t b = a + 1; b < calls.size(); ++b) {
      Sets sets = CreateThreadCommunicators(2, kLong);
      for (const absl::Status& status : OnEachRank(&sets, [&](int rank, CommunicatorSet&set) {
             return calls[rank == 0 ? a : b](set);
           })) {
        EXPECT_TRUE(absl::IsFailedPrecondition(status)) << a << " and " << b << ": " << status;
      }
    }
  }
}

TEST(ThreadCommunicatorTest, CutsThatAreNoneAreRefused) {
  Sets sets = CreateThreadCommunicators(1, kLong);
  ImmediateStream stream;
  char data[8] = "";
  for (const std::vector<int64_t>& cuts :
       {std::vector<int64_t>{}, {0}, {0, 4, 8}, {5, 3}, {-1, 3}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(sets[0].tiles->AllGather(stream, data, cuts)));
  }
}

}  // namespace
}  // namespace megatrain
