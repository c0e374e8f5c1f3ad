#include "engine/comm/launch_environment.h"

#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// The names of a launcher's variables.
struct Variables {
  Launcher launcher;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
};

constexpr Variables kOpenMpi = {Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kTorchrun = {Launcher::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE"};
// SLURM_NTASKS_PER_NODE is what was asked for, and may be absent; SLURM_TASKS_PER_NODE is a list.
constexpr Variables kSlurm = {Launcher::kSlurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                              nullptr};
// A batch script has the rank 0 of all tasks, though srun has started none of them: that sets this.
constexpr char kSlurmStep[] = "SLURM_STEP_ID";
constexpr char kSlurmTasks[] = "SLURM_TASKS_PER_NODE";
constexpr char kSlurmStepTasks[] = "SLURM_STEP_TASKS_PER_NODE";
constexpr char kSlurmNode[] = "SLURM_NODEID";

class Reader {
 public:
  explicit Reader(EnvironmentLookup get) : get_(get) {}

  bool Has(const char* name) const { return get_(name) != nullptr; }
  std::string Text(const char* name) const { return Has(name) ? get_(name) : ""; }

  // A number from `min` to `max`. Without a value it is missing.
  absl::StatusOr<int> Number(const char* name, int min, int max) const {
    if (!Has(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("environment: ", name, " is not set, though the launcher sets others"));
    }
    int number = 0;
    if (!absl::SimpleAtoi(Text(name), &number) || number < min || number > max) {
      return absl::InvalidArgumentError(absl::StrCat("environment: ", name, "=", Text(name),
                                                     " must be a number from ", min, " to ", max));
    }
    return number;
  }

 private:
  const EnvironmentLookup get_;
};

constexpr int kRanksMax = 1 << 20;

// The tasks of node number `node` in "2(x3),1": three nodes of two, then one of one. Returns
// nullopt if the list is malformed or shorter.
std::optional<int> TasksOfNode(const std::string& text, int node) {
  int nodes = 0;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    int tasks = 0, repeated = 1;
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits("(x", 1));
    if (!absl::SimpleAtoi(parts[0], &tasks) || tasks < 1) return std::nullopt;
    if (parts.size() == 2) {
      absl::string_view count = parts[1];
      if (!absl::ConsumeSuffix(&count, ")") || !absl::SimpleAtoi(count, &repeated)) {
        return std::nullopt;
      }
    }
    if (repeated < 1) return std::nullopt;
    if (node - nodes < repeated) return tasks;
    nodes += repeated;
  }
  return std::nullopt;
}

absl::StatusOr<int> SlurmLocalRanks(const Reader& reader, int ranks) {
  // A step's own list comes first: the other may be that of the whole allocation.
  const char* const name = reader.Has(kSlurmStepTasks) ? kSlurmStepTasks : kSlurmTasks;
  MT_ASSIGN_OR_RETURN(const int node, reader.Number(kSlurmNode, 0, kRanksMax));
  const std::optional<int> tasks = TasksOfNode(reader.Text(name), node);
  if (tasks.has_value() && *tasks <= ranks) return *tasks;
  return absl::InvalidArgumentError(absl::StrCat("environment: ", name, "=", reader.Text(name),
                                                 " must be a list such as 2(x3),1 that has node ",
                                                 node, " (", kSlurmNode, ") with at most ", ranks,
                                                 " tasks (", kSlurm.ranks, ")"));
}

absl::Status CheckSameRank(const Reader& reader, const LaunchEnvironment& environment,
                           const char* rank, const char* other) {
  if (!reader.Has(other)) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const int number, reader.Number(other, 0, kRanksMax));
  if (number == environment.rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("environment: ", other, "=", number,
                                                 " contradicts ", rank, "=", environment.rank));
}

absl::Status ReadRanks(const Reader& reader, const Variables& variables,
                       LaunchEnvironment* environment) {
  environment->launcher = variables.launcher;
  MT_ASSIGN_OR_RETURN(environment->ranks, reader.Number(variables.ranks, 1, kRanksMax));
  MT_ASSIGN_OR_RETURN(environment->rank, reader.Number(variables.rank, 0, environment->ranks - 1));
  if (variables.local_ranks != nullptr) {
    MT_ASSIGN_OR_RETURN(environment->local_ranks,
                        reader.Number(variables.local_ranks, 1, environment->ranks));
  } else {
    MT_ASSIGN_OR_RETURN(environment->local_ranks, SlurmLocalRanks(reader, environment->ranks));
  }
  MT_ASSIGN_OR_RETURN(environment->local_rank,
                      reader.Number(variables.local_rank, 0, environment->local_ranks - 1));
  return absl::OkStatus();
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

LaunchEnvironment ApparentEnvironment(EnvironmentLookup get_environment,
                                      const std::string& host_name) {
  const auto number = [&](const char* Variables::*name) {
    int number = 0;
    for (const Variables* const variables : {&kOpenMpi, &kTorchrun, &kSlurm}) {
      const char* const value = get_environment(variables->*name);
      if (value != nullptr && absl::SimpleAtoi(value, &number)) break;
      number = 0;
    }
    return number;
  };
  LaunchEnvironment environment;
  environment.rank = number(&Variables::rank);
  environment.local_rank = number(&Variables::local_rank);
  environment.node = host_name;
  return environment;
}

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(EnvironmentLookup get_environment,
                                                        const std::string& host_name) {
  const Reader reader(get_environment);
  LaunchEnvironment environment;
  environment.node = host_name;
  const auto has_any = [&](const Variables& variables) {
    return reader.Has(variables.rank) || reader.Has(variables.ranks) ||
           reader.Has(variables.local_rank);
  };
  if (has_any(kOpenMpi)) {
    MT_RETURN_IF_ERROR(ReadRanks(reader, kOpenMpi, &environment));
    MT_RETURN_IF_ERROR(CheckSameRank(reader, environment, kOpenMpi.rank, "PMIX_RANK"));
    MT_RETURN_IF_ERROR(CheckSameRank(reader, environment, kOpenMpi.rank, kTorchrun.rank));
  } else if (has_any(kTorchrun)) {
    MT_RETURN_IF_ERROR(ReadRanks(reader, kTorchrun, &environment));
    environment.master_address = reader.Text("MASTER_ADDR");
    if (environment.master_address.empty()) {
      return absl::InvalidArgumentError(
          "environment: MASTER_ADDR is not set, though RANK and WORLD_SIZE are");
    }
    MT_ASSIGN_OR_RETURN(environment.master_port, reader.Number("MASTER_PORT", 1, 65535));
  } else if (reader.Has(kSlurmStep)) {
    MT_RETURN_IF_ERROR(ReadRanks(reader, kSlurm, &environment));
    MT_RETURN_IF_ERROR(CheckSameRank(reader, environment, kSlurm.rank, "PMIX_RANK"));
    if (reader.Has("SLURMD_NODENAME")) environment.node = reader.Text("SLURMD_NODENAME");
  }
  return environment;
}

}  // namespace megatrain
