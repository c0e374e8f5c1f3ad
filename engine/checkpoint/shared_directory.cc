#include "engine/checkpoint/shared_directory.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_state.h"
#include "engine/comm/exchange.h"
#include "engine/comm/launch_environment.h"

namespace megatrain {
namespace {

constexpr char kPrefix[] = "shared-";

// Looks for the file `path` in `directory` until it is there or `patience` has passed. Setting the
// system's clock changes nothing.
bool Sees(const std::string& path, const std::string& directory, absl::Duration patience,
          FileSystem* files) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (!files->FileExists(path)) {
    if (absl::FromChrono(Clock::now() - begin) >= patience) return false;
    // A file system of a network may remember for long that a directory was not there. Listing the
    // nearest that is makes it ask again.
    std::string at = directory;
    while (!files->ListDirectory(at).ok() && at != ParentDirectory(at)) at = ParentDirectory(at);
    absl::SleepFor(absl::Milliseconds(50));
  }
  return true;
}

// A rank's report to the others.
struct Report {
  std::string host;
  int leader = 0;  // of its directory
  bool sees = true;
  std::string seen = {};  // the leader of another directory whose file it sees; "" if none
  std::string why_not_written = {};  // "" if it can write
};

std::string Pack(const Report& report) {
  return absl::StrJoin(
      {report.host, absl::StrCat(report.leader), std::string(report.sees ? "sees" : ""),
       report.seen, report.why_not_written},
      std::string(1, '\0'));
}

Report Unpack(absl::string_view bytes) {
  const std::vector<std::string> parts = absl::StrSplit(bytes, absl::MaxSplits('\0', 4));
  Report report = {parts[0], 0, !parts[2].empty(), parts[3], parts[4]};
  (void)absl::SimpleAtoi(parts[1], &report.leader);
  return report;
}

std::string NameOf(int rank, const std::vector<Report>& reports) {
  const std::string& host = reports[static_cast<size_t>(rank)].host;
  return host.empty() ? absl::StrCat("rank ", rank) : absl::StrCat("rank ", rank, " on ", host);
}

// Returns what the reports of all ranks mean for `directory`, as rank 0 calls it. `of_machine`:
// each machine has its own.
absl::Status Judge(const std::string& directory, const std::vector<Report>& reports,
                   bool of_machine) {
  std::vector<std::string> blind;
  int unseen = 0;  // the leader whose file they do not see
  for (int rank = 0; rank < std::ssize(reports); ++rank) {
    const Report& report = reports[static_cast<size_t>(rank)];
    const std::string name = NameOf(rank, reports);
    if (int other = 0; absl::SimpleAtoi(report.seen, &other)) {
      return FoundByAll(absl::FailedPreconditionError(absl::StrCat(
          "checkpoint.shared: false, but ", NameOf(other, reports), " and ", name, " share ",
          directory, "; leave the key out, or give each machine a directory of its own")));
    }
    if (report.sees && !report.why_not_written.empty()) {
      return FoundByAll(absl::FailedPreconditionError(
          absl::StrCat("checkpoint.directory: ", name, " cannot write in ", directory, ": ",
                       report.why_not_written,
                       "; all processes of a job write into it: let the job's user write there on "
                       "all machines, or name another directory")));
    }
    if (report.sees || (!blind.empty() && report.leader != unseen)) continue;
    unseen = report.leader;
    blind.push_back(name);
  }
  if (blind.empty()) return absl::OkStatus();
  return FoundByAll(absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory: ", directory, " is not shared: what ", NameOf(unseen, reports),
      " made there is not seen by ", absl::StrJoin(blind, ", "),
      of_machine ? ". The processes of a machine, in containers too, write into one directory: "
                   "mount it at the same path for all of them"
                 : ". All processes of a job write into one directory: name one on a file system "
                   "that is mounted at the same path on all machines, or give each machine one of "
                   "its own (checkpoint.shared: false)")));
}

}  // namespace

DirectoryRanks AllInOneDirectory(Communicator* communicator) {
  DirectoryRanks ranks = {.communicator = communicator};
  ranks.end = ranks.ranks();
  return ranks;
}

absl::StatusOr<DirectoryRanks> OneDirectoryForEachMachine(Communicator* communicator,
                                                          absl::Span<const std::string> machines) {
  DirectoryRanks ranks = {.communicator = communicator, .end = 0, .parts = 0};
  std::set<std::string> seen;
  for (size_t begin = 0; begin < machines.size();) {
    size_t end = begin + 1;
    while (end < machines.size() && machines[end] == machines[begin]) ++end;
    if (!seen.insert(machines[begin]).second) {
      return FoundByAll(absl::FailedPreconditionError(absl::StrCat(
          "checkpoint.shared: false: the ranks of a machine do not follow each other: rank ", begin,
          " is on the machine of an earlier one, and rank ", begin - 1,
          " is not; deal ranks to machines in blocks (mpirun --map-by slot, srun "
          "--distribution=block)")));
    }
    if (static_cast<int>(begin) <= ranks.rank() && ranks.rank() < static_cast<int>(end)) {
      ranks.begin = static_cast<int>(begin);
      ranks.end = static_cast<int>(end);
      ranks.part = ranks.parts;
    }
    ++ranks.parts;
    begin = end;
  }
  return ranks;
}

absl::Status CheckIsShared(const std::string& directory, const DirectoryRanks& ranks,
                           FileSystem* files, absl::Duration patience) {
  Communicator* const communicator = ranks.communicator;
  if (communicator == nullptr) return absl::OkStatus();
  const int rank = ranks.rank();
  MT_ASSIGN_OR_RETURN(const std::string directory_of_first, FromFirstRank(communicator, directory));
  MT_ASSIGN_OR_RETURN(const std::string name,
                      FromFirstRank(communicator, absl::StrCat(kPrefix, NewRunName())));
  const auto token = [&](int of) { return JoinPath(directory, absl::StrCat(name, "-", of)); };
  absl::Status written;
  const absl::Cleanup remove = [&] { files->RemoveFile(token(rank)).IgnoreError(); };
  if (ranks.leads()) written = WriteFileSynced(files, token(rank), "");

  Report own{HostName(), ranks.begin};
  // Those that lead have written, or could not, when all have heard of it.
  std::vector<int> leaders;
  bool made = false;
  MT_RETURN_IF_ERROR(ExchangeBytes(communicator,
                                   ranks.leads() ? (written.ok() ? "made" : "failed") : "",
                                   [&](int other, absl::string_view told) {
                                     if (!told.empty()) leaders.push_back(other);
                                     if (other == ranks.begin) made = told == "made";
                                   }));
  if (!ranks.leads() && made) {
    own.sees = Sees(token(ranks.begin), directory, patience, files);
    if (own.sees) written = WriteFileSynced(files, token(rank), "");
  }
  for (const int leader : leaders) {
    if (!ranks.Shares(leader) && files->FileExists(token(leader))) own.seen = absl::StrCat(leader);
  }
  const bool passes = absl::IsCancelled(written) || IsDiskFull(written);
  MT_RETURN_IF_ERROR(Agree(communicator, passes ? written : absl::OkStatus()));
  own.why_not_written = std::string(written.message());

  std::vector<Report> reports;
  MT_RETURN_IF_ERROR(ExchangeBytes(communicator, Pack(own), [&](int, absl::string_view bytes) {
    reports.push_back(Unpack(bytes));
  }));
  return Judge(directory_of_first, reports, ranks.parts > 1);
}

bool IsOfSharedCheck(absl::string_view name) {
  int rank = 0;
  return absl::ConsumePrefix(&name, kPrefix) && name.size() > 33 && name[32] == '-' &&
         absl::SimpleAtoi(name.substr(33), &rank) &&
         std::all_of(name.begin(), name.begin() + 32, absl::ascii_isxdigit);
}

}  // namespace megatrain
