#include "engine/comm/exchange.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "engine/comm/launch_environment.h"
#include "engine/comm/thread_communicator.h"

namespace megatrain {
namespace {

void OnRanks(int ranks, absl::FunctionRef<void(Communicator*)> run) {
  std::vector<CommunicatorSet> communicators = CreateThreadCommunicators(ranks, absl::Seconds(60));
  std::vector<std::thread> threads;
  for (const CommunicatorSet& set : communicators) {
    threads.emplace_back([&] { run(set.control.get()); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ExchangeTest, EveryRankVisitsTheBytesOfAll) {
  const std::vector<std::string> given = {"", std::string(100000, 'b'), std::string("\0c", 2)};
  OnRanks(3, [&](Communicator* communicator) {
    std::vector<std::string> got;
    const absl::Status status = ExchangeBytes(communicator, given[communicator->rank()],
                                              [&](int rank, absl::string_view bytes) {
                                                EXPECT_EQ(rank, static_cast<int>(got.size()));
                                                got.emplace_back(bytes);
                                              });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(got, given);
  });
  int visits = 0;
  EXPECT_TRUE(ExchangeBytes(nullptr, "alone", [&](int rank, absl::string_view bytes) {
                EXPECT_EQ(absl::StrCat(rank, bytes), "0alone");
                ++visits;
              }).ok());
  EXPECT_EQ(visits, 1);
}

TEST(AgreeTest, AllReturnTheErrorOfTheLowestRank) {
  OnRanks(3, [](Communicator* communicator) {
    EXPECT_TRUE(Agree(communicator, absl::OkStatus()).ok());
    const absl::Status own[] = {absl::OkStatus(), DiskFullError("disk full: x"),
                                absl::DataLossError("y")};
    const absl::Status agreed = Agree(communicator, own[communicator->rank()]);
    EXPECT_TRUE(IsDiskFull(agreed)) << agreed;
    EXPECT_EQ(agreed.message(), absl::StrCat("rank 1 on ", HostName(), ": disk full: x"));
    const absl::Status last[] = {absl::OkStatus(), absl::OkStatus(), absl::DataLossError("")};
    EXPECT_EQ(Agree(communicator, last[communicator->rank()]).message(),
              absl::StrCat("rank 2 on ", HostName(), ": "));
  });
  EXPECT_EQ(Agree(nullptr, absl::DataLossError("y")), absl::DataLossError("y"));
}

TEST(FromFirstRankTest, AllHaveTheTextOfRankZero) {
  OnRanks(3, [](Communicator* communicator) {
    const auto first = FromFirstRank(communicator, absl::StrCat("of ", communicator->rank()));
    EXPECT_EQ(first.value_or("none"), "of 0");
  });
  EXPECT_EQ(FromFirstRank(nullptr, "alone").value_or("none"), "alone");
}

TEST(AbortAllTest, NamesTheRankUnlessAllHaveFoundTheError) {
  OnRanks(2, [](Communicator* communicator) {
    EXPECT_TRUE(communicator->Barrier().ok());
    const absl::Status first = communicator->rank() == 1
                                   ? AbortAll(communicator, absl::DataLossError("x"))
                                   : communicator->Barrier();
    EXPECT_EQ(first, absl::DataLossError(absl::StrCat("rank 1 on ", HostName(), ": x")));
  });
  OnRanks(2, [](Communicator* communicator) {
    const absl::Status agreed = Agree(
        communicator, communicator->rank() == 1 ? absl::DataLossError("x") : absl::OkStatus());
    EXPECT_EQ(AbortAll(communicator, agreed).message(),
              absl::StrCat("rank 1 on ", HostName(), ": x"));
  });
  EXPECT_EQ(AbortAll(nullptr, absl::DataLossError("y")), absl::DataLossError("y"));
}

}  // namespace
}  // namespace megatrain
