// This benchmark measures how fast the processes of a machine exchange data. It prints the ratio to
// threads of one process, which read each other's memory directly:
//
//   MEGATRAIN_MPI=bazel-bin/server/libmegatrain-mpi.so mpirun -n 2 exchange_bench [MIB] [ROUNDS]
//
// MIB (256 by default) is the size of a rank's buffer. A round times both, one after the other, and
// copies by as many threads. Prints the rates of each round, in GB/s that all ranks receive
// together, and the medians of the rounds' ratios.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/comm/communicator.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "engine/comm/thread_communicator.h"
#include "engine/device/cpu/cpu_device.h"
#include "tests/bench/median.h"

namespace megatrain {
namespace {

constexpr int kRepetitions = 4;  // of an operation in a round

struct Rates {
  double gather = 0, reduce = 0;  // GB/s that all ranks receive together
};

// As one rank. The rates are those of all ranks, who end together.
absl::StatusOr<Rates> Measure(Communicator& communicator, void* data, int64_t bytes) {
  Stream stream;
  const int ranks = communicator.ranks();
  std::vector<int64_t> cuts, byte_cuts;
  for (int rank = 0; rank <= ranks; ++rank) {
    cuts.push_back(bytes / int64_t{sizeof(float)} / ranks * rank);
    byte_cuts.push_back(cuts.back() * int64_t{sizeof(float)});
  }
  const auto rate = [&](absl::FunctionRef<absl::Status()> operation) -> absl::StatusOr<double> {
    MT_RETURN_IF_ERROR(operation());  // finds all cold
    MT_RETURN_IF_ERROR(communicator.Barrier());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRepetitions; ++i) MT_RETURN_IF_ERROR(operation());
    MT_RETURN_IF_ERROR(communicator.Barrier());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return static_cast<double>(byte_cuts.back() * (ranks - 1) * kRepetitions) / seconds.count() /
           1e9;
  };
  Rates rates;
  MT_ASSIGN_OR_RETURN(rates.gather,
                      rate([&] { return communicator.AllGather(stream, data, byte_cuts); }));
  MT_ASSIGN_OR_RETURN(rates.reduce, rate([&] {
                        return communicator.ReduceScatter(stream, static_cast<float*>(data), cuts);
                      }));
  return rates;
}

// The same by threads of this process.
Rates MeasureThreads(const std::vector<std::unique_ptr<DeviceMemory>>& memory) {
  std::vector<CommunicatorSet> sets =
      CreateThreadCommunicators(static_cast<int>(memory.size()), absl::InfiniteDuration());
  Rates rates;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Rates measured =
          Measure(*sets[rank].tiles, memory[rank]->data(), memory[rank]->bytes()).value();
      if (rank == 0) rates = measured;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return rates;
}

// GB/s that as many threads copy together, each half a buffer to its other half.
double MeasureCopies(const std::vector<std::unique_ptr<DeviceMemory>>& memory) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  int64_t copied = 0;
  for (const std::unique_ptr<DeviceMemory>& block : memory) {
    char* const data = static_cast<char*>(block->data());
    const int64_t half = block->bytes() / 2;
    copied += 2 * kRepetitions * half;
    threads.emplace_back([data, half] {
      for (int i = 0; i < 2 * kRepetitions; ++i) {
        std::memcpy(data + (i % 2) * half, data + (1 - i % 2) * half, static_cast<size_t>(half));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(copied) / seconds.count() / 1e9;
}

absl::Status Run(int64_t bytes, int rounds) {
  MT_ASSIGN_OR_RETURN(CommunicatorSet set, CreateMpiCommunicators({}));
  Communicator& processes = *set.tiles;
  ThreadPool pool(1);
  const std::unique_ptr<Device> device = CreateCpuDevice(&pool, {});
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (int i = 0; i < (processes.rank() == 0 ? processes.ranks() : 1); ++i) {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> block, device->Allocate(bytes));
    std::memset(block->data(), 0, static_cast<size_t>(bytes));
    memory.push_back(std::move(block));
  }
  std::vector<double> gathers, reductions, of_copies;
  for (int round = 0; round < rounds; ++round) {
    MT_ASSIGN_OR_RETURN(const Rates by_processes, Measure(processes, memory[0]->data(), bytes));
    if (processes.rank() == 0) {
      const Rates by_threads = MeasureThreads(memory);
      const double copies = MeasureCopies(memory);
      std::printf("processes: gather %.2f, reduce %.2f GB/s; threads: %.2f, %.2f; copies: %.2f\n",
                  by_processes.gather, by_processes.reduce, by_threads.gather, by_threads.reduce,
                  copies);
      gathers.push_back(by_processes.gather / by_threads.gather);
      reductions.push_back(by_processes.reduce / by_threads.reduce);
      of_copies.push_back(by_processes.gather / copies);
    }
    MT_RETURN_IF_ERROR(processes.Barrier());
  }
  if (processes.rank() == 0) {
    std::printf("processes over threads: gather %.3f, reduce %.3f; gather over copies: %.3f\n",
                Median(gathers), Median(reductions), Median(of_copies));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const int64_t mebibytes = argc > 1 ? std::atoll(argv[1]) : 256;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  if (mebibytes < 1 || rounds < 1) return 2;
  if (const absl::Status status = megatrain::Run(mebibytes << 20, rounds); !status.ok()) {
    std::fprintf(stderr, "exchange_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
