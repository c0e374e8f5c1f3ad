#include "engine/run/start/processes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/comm/exchange.h"
#include "engine/host/host_devices.h"

namespace megatrain {
namespace {

// The values that follow keys in `text`, each ended by a zero.
std::map<std::string, std::string> Parse(absl::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    parts.emplace_back(text.substr(0, text.find('\0')));
    text.remove_prefix(parts.back().size() + 1);
  }
  std::map<std::string, std::string> values;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) values[parts[i]] = parts[i + 1];
  return values;
}

std::string Quoted(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "nothing" : absl::StrCat("\"", found->second, "\"");
}

}  // namespace

absl::Status LeaderFirst(RunContext& run, bool leads, absl::FunctionRef<absl::Status()> work) {
  if (run.processes() == nullptr) return work();
  if (leads) MT_RETURN_IF_ERROR(work());
  MT_RETURN_IF_ERROR(run.process_communicator()->Barrier());
  return leads ? absl::OkStatus() : work();
}

absl::Status CheckSameInAll(RunContext& run, absl::string_view what,
                            const std::map<std::string, std::string>& own,
                            absl::string_view advice) {
  if (run.processes() == nullptr) return absl::OkStatus();
  std::string text;
  for (const auto& [key, value] : own) {
    for (const std::string* part : {&key, &value}) text.append(*part).push_back('\0');
  }
  // Hashes are compared first: mostly the values are the same.
  std::string first_hash;
  bool same = true;
  MT_RETURN_IF_ERROR(ExchangeBytes(run.process_communicator(), HashBytes(text),
                                   [&](int rank, absl::string_view hash) {
                                     if (rank == 0) first_hash = std::string(hash);
                                     same &= hash == first_hash;
                                   }));
  if (same) return absl::OkStatus();
  std::map<std::string, std::string> first;
  absl::Status status;
  MT_RETURN_IF_ERROR(
      ExchangeBytes(run.process_communicator(), text, [&](int rank, absl::string_view bytes) {
        std::map<std::string, std::string> other = Parse(bytes);
        if (rank == 0) first = other;
        if (other == first || !status.ok()) return;
        other.insert(first.begin(), first.end());  // so that each key is there
        std::map<std::string, std::string> given = Parse(bytes);
        for (const auto& [key, value] : other) {
          if (Quoted(given, key) == Quoted(first, key)) continue;
          status = FoundByAll(absl::FailedPreconditionError(
              absl::StrCat(what, ": rank ", rank, " has ", key, " ", Quoted(given, key),
                           ", and rank 0 has ", Quoted(first, key), "; ", advice)));
          return;
        }
      }));
  return status;
}

absl::Status ShareBudget(RunContext& run, MemoryBudget& budget, MachineSpeed& machine) {
  if (run.processes() == nullptr) return absl::OkStatus();
  struct Memory {
    const char* name;
    int64_t* bytes;
    bool is_need = false;  // the most of all counts, not the least
  };
  const Memory memory[] = {{"host memory", &budget.host_bytes},
                           {"host pool", &budget.pool_bytes},
                           {"device memory", &budget.device_bytes},
                           {"device reserve", &budget.device_reserve_bytes, /*is_need=*/true}};
  std::vector<double> own;
  for (const Memory& one : memory) own.push_back(static_cast<double>(*one.bytes));
  MT_ASSIGN_OR_RETURN(const std::vector<double> all, run.process_communicator()->GatherValues(own));
  for (size_t i = 0; i < own.size(); ++i) {
    std::vector<int64_t> by_rank;
    for (size_t at = i; at < all.size(); at += own.size()) {
      by_rank.push_back(static_cast<int64_t>(all[at]));
    }
    const auto [least, most] = std::minmax_element(by_rank.begin(), by_rank.end());
    const auto text = [&by_rank](std::vector<int64_t>::const_iterator of) {
      return absl::StrCat(FormatBytesShort(*of), " (rank ", of - by_rank.begin(), ")");
    };
    // Free host memory differs a little between any two processes.
    if (IsUnequal(by_rank) && *least > 0) {
      run.Say(absl::StrCat(
          "the processes have unequal ", memory[i].name, ", ", text(least), " to ", text(most),
          memory[i].is_need ? ": the most is planned with" : ": the least is planned with"));
    }
    *memory[i].bytes = memory[i].is_need ? *most : *least;
  }
  static_assert(std::is_trivially_copyable_v<MachineSpeed>);
  return run.process_communicator()->Broadcast(&machine, sizeof(machine), /*root=*/0);
}

}  // namespace megatrain
