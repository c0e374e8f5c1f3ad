// What the processes of a run find out together. They are threads here, with a host each.
#include "engine/run/start/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/comm/exchange.h"
#include "engine/comm/thread_communicator.h"
#include "engine/engine.h"
#include "engine/host/memory_budget.h"
#include "engine/plan/step_prediction.h"
#include "engine/run/start/run_context.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

// A process of a run.
struct Process {
  RunContext& run;
  TrainingControl& control;              // its own, by which it alone is asked
  const std::vector<std::string>& said;  // the run's messages
  int rank() const { return run.process_communicator()->rank(); }
};

void InProcesses(int count, absl::FunctionRef<void(const Process&)> body) {
  std::vector<CommunicatorSet> communicators = CreateThreadCommunicators(count, absl::Seconds(60));
  std::vector<std::thread> processes;
  for (CommunicatorSet& set : communicators) {
    processes.emplace_back([&set, &body] {
      EngineHostOptions host_options;
      host_options.device = "cpu";
      const auto host = EngineHost::Create(host_options);
      ASSERT_TRUE(host.ok()) << host.status();
      JobSpec spec;
      TrainingOptions options;
      options.processes = &set;
      TrainingControl control;
      std::vector<std::string> said;
      const RunSink tell = [&said](const RunEvent& event) {
        if (const auto* const message = std::get_if<RunMessage>(&event)) {
          said.push_back(message->line);
        }
      };
      RunContext run(**host, spec, options, control, tell);
      body(Process{run, control, said});
    });
  }
  for (std::thread& process : processes) process.join();
}

TEST(CheckSameInAllTest, AValueThatDiffersOrIsMissingIsNamedByAll) {
  using Values = std::map<std::string, std::string>;
  struct Case {
    Values first, other;  // of ranks 0 and 1, and of rank 2
    std::string told;     // "" if they are the same
  };
  const Case cases[] = {
      {{{"a", "1"}, {"b", "2"}}, {{"a", "1"}, {"b", "2"}}, ""},
      {{}, {}, ""},
      {{{"a", "1"}, {"b", "2"}}, {{"a", "1"}, {"b", "3"}}, "b \"3\", and rank 0 has \"2\""},
      {{{"a", "1"}, {"b", "2"}}, {{"a", "1"}}, "b nothing, and rank 0 has \"2\""},
      {{{"a", "1"}}, {{"a", "1"}, {"b", "2"}}, "b \"2\", and rank 0 has nothing"},
      {{{"a", "1"}}, {{"b", "1"}}, "a nothing, and rank 0 has \"1\""},
      {{{"a", "1"}}, {}, "a nothing, and rank 0 has \"1\""},
      {{}, {{"a", ""}}, "a \"\", and rank 0 has nothing"},
  };
  for (const Case& c : cases) {
    InProcesses(3, [&c](const Process& process) {
      const Values& own = process.rank() == 2 ? c.other : c.first;
      const absl::Status status = CheckSameInAll(process.run, "files", own, "copy them");
      if (c.told.empty()) {
        EXPECT_TRUE(status.ok()) << status;
        return;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_EQ(std::string(status.message()), "files: rank 2 has " + c.told + "; copy them");
    });
  }
}

TEST(ShareBudgetTest, AllPlanWithTheLeastMemoryTheLargestReserveAndTheFirstsSpeed) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const int64_t host[] = {30 * kGiB, 20 * kGiB, 40 * kGiB};
  const int64_t pool[] = {9 * kGiB, 9 * kGiB + 1, 9 * kGiB + 2};  // about equal
  const int64_t device[] = {8 * kGiB, 8 * kGiB, 6 * kGiB};
  const int64_t reserve[] = {1 * kGiB, 2 * kGiB, 1 * kGiB};
  InProcesses(3, [&](const Process& process) {
    const int rank = process.rank();
    MemoryBudget budget;
    budget.host_bytes = host[rank];
    budget.pool_bytes = pool[rank];
    budget.device_bytes = device[rank];
    budget.device_reserve_bytes = reserve[rank];
    MachineSpeed machine;
    machine.rates.h2d_bytes_per_second = 10 + rank;
    machine.resources.threads = 4 - rank;
    const absl::Status status = ShareBudget(process.run, budget, machine);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(budget.host_bytes, 20 * kGiB);
    EXPECT_EQ(budget.pool_bytes, 9 * kGiB);
    EXPECT_EQ(budget.device_bytes, 6 * kGiB);
    EXPECT_EQ(budget.device_reserve_bytes, 2 * kGiB);
    EXPECT_EQ(machine.rates.h2d_bytes_per_second, 10);
    EXPECT_EQ(machine.resources.threads, 4);
    EXPECT_THAT(process.said,
                ElementsAre("the processes have unequal host memory, 20.00 GiB (rank 1) to 40.00 "
                            "GiB (rank 2): the least is planned with",
                            "the processes have unequal device memory, 6.00 GiB (rank 2) to 8.00 "
                            "GiB (rank 1): the least is planned with",
                            "the processes have unequal device reserve, 1.00 GiB (rank 0) to 2.00 "
                            "GiB (rank 1): the most is planned with"));
  });
}

TEST(LeaderFirstTest, TheOthersUseWhatAllLeadersHaveMade) {
  std::atomic<int> made = 0, used = 0;
  InProcesses(3, [&](const Process& process) {
    const bool leads = process.rank() != 1;  // the first of two directories, and of a third
    const absl::Status status = LeaderFirst(process.run, leads, [&] {
      if (leads) {
        ++made;
      } else {
        used = made.load();
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  });
  EXPECT_EQ(made, 2);
  EXPECT_EQ(used, 2);
}

TEST(LeaderFirstTest, TheOthersDoNothingAfterALeadersError) {
  std::atomic<int> calls = 0;
  InProcesses(3, [&](const Process& process) {
    const bool leads = process.rank() == 0;
    const absl::Status status = LeaderFirst(process.run, leads, [&]() -> absl::Status {
      ++calls;
      return absl::DataLossError("unreadable");
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    if (leads) (void)AbortAll(process.run.process_communicator(), status);
  });
  EXPECT_EQ(calls, 1);
}

TEST(ShareRequestsTest, WhatOneProcessIsAskedAllAreAsked) {
  InProcesses(3, [](const Process& process) {
    const TrainingControl& asked = process.run.control();
    const auto share = [&] {
      const absl::Status status = process.run.ShareRequests();
      EXPECT_TRUE(status.ok()) << status;
    };
    share();
    EXPECT_FALSE(asked.Any());
    // A pause would end in one process alone.
    if (process.rank() == 1) process.control.Pause();
    share();
    EXPECT_FALSE(asked.Any());
    if (process.rank() == 2) process.control.Checkpoint();
    share();
    EXPECT_TRUE(asked.checkpoint_requested());
    EXPECT_FALSE(asked.stop_requested());
    EXPECT_TRUE(process.run.control().TakeCheckpoint());
    share();
    EXPECT_FALSE(asked.checkpoint_requested()) << "one request is one checkpoint";
    if (process.rank() == 1) process.control.Stop();
    share();
    EXPECT_TRUE(asked.stop_requested());
    EXPECT_FALSE(asked.cancel_requested());
    if (process.rank() == 2) process.control.Cancel();
    share();
    EXPECT_TRUE(asked.cancel_requested());
  });
}

}  // namespace
}  // namespace megatrain
