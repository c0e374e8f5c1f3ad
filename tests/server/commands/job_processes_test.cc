#include "server/commands/job_processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/processors.h"
#include "engine/comm/thread_communicator.h"
#include "engine/host/engine_host.h"
#include "tests/engine/device/cuda/emulated_gpu.h"

namespace megatrain {
namespace {

// Where a process is.
struct Place {
  std::string machine, processors;
};

// Processes are threads here.
std::vector<EngineHostOptions> Divide(const std::vector<Place>& places) {
  const int ranks = static_cast<int>(places.size());
  std::vector<CommunicatorSet> communicators =
      CreateThreadCommunicators(ranks, absl::InfiniteDuration());
  std::vector<EngineHostOptions> options(places.size());
  std::vector<std::thread> processes;
  for (size_t i = 0; i < places.size(); ++i) {
    processes.emplace_back([&, i] {
      const absl::Status status = DivideMachine(*communicators[i].control, places[i].machine,
                                                places[i].processors, options[i]);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& process : processes) process.join();
  return options;
}

// As a launcher deals them out in turns, so that a rank's number is not its number on its machine.
TEST(JobProcessesTest, ProcessesTakeTheGpusOfTheirMachineInTheOrderOfRanks) {
  const std::vector<EngineHostOptions> options =
      Divide({{"a", "0,1,"}, {"b", "0,1,"}, {"a", "0,1,"}, {"b", "0,1,"}, {"a", "0,1,"}});
  const int sharers[] = {3, 2, 3, 2, 3}, gpus[] = {0, 0, 1, 1, 2};
  for (size_t rank = 0; rank < options.size(); ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(options[rank].sharers, sharers[rank]);
    EXPECT_EQ(options[rank].process, gpus[rank]);
    // From the GPU on that the job names.
    for (const int first : {0, 1}) {
      EmulatedGpu gpu({.devices = 4});
      EngineHostOptions host = options[rank];
      host.device = HostDevices::CudaId(first);
      host.open_gpu = gpu.opener();
      const auto opened = EngineHost::Create(host);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_EQ((*opened)->devices().first, HostDevices::CudaId(first + gpus[rank]));
      EXPECT_EQ((*opened)->devices().count, 1);
    }
  }
}

TEST(JobProcessesTest, ProcessorsAreDividedWhereProcessesMayUseTheSame) {
  const int all = AvailableProcessors();
  std::vector<EngineHostOptions> options = Divide({{"a", "0,1,"}, {"a", "0,1,"}, {"b", "0,1,"}});
  EXPECT_EQ(options[0].threads, std::max(1, all / 2));
  EXPECT_EQ(options[1].threads, std::max(1, all / 2));
  EXPECT_EQ(options[2].threads, all) << "another machine's have the same numbers";
  options = Divide({{"a", "0,"}, {"a", "1,"}});
  EXPECT_EQ(options[0].threads, all) << "a launcher has bound them apart";
  EXPECT_EQ(options[1].process, 1);
}

}  // namespace
}  // namespace megatrain
