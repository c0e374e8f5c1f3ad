#include "engine/checkpoint/shared_directory.h"

#include <algorithm>
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

// Looks for the file `path` in `directory` until it is there or `end` has come.
bool Sees(const std::string& path, const std::string& directory, absl::Time end,
          FileSystem* files) {
  while (!files->FileExists(path)) {
    if (absl::Now() >= end) return false;
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
  bool sees = false;
  std::string why_not_written;  // "" if it can write
};

std::string Pack(const Report& report) {
  return absl::StrJoin(
      {report.host, std::string(report.sees ? "sees" : ""), report.why_not_written},
      std::string(1, '\0'));
}

Report Unpack(absl::string_view bytes) {
  const std::vector<std::string> parts = absl::StrSplit(bytes, absl::MaxSplits('\0', 2));
  return {parts[0], !parts[1].empty(), parts[2]};
}

std::string NameOf(int rank, const std::string& host) {
  return host.empty() ? absl::StrCat("rank ", rank) : absl::StrCat("rank ", rank, " on ", host);
}

// Returns what the reports of all ranks mean for `directory`, as rank 0 calls it.
absl::Status Judge(const std::string& directory, const std::vector<Report>& reports) {
  std::vector<std::string> blind;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const Report& report = reports[rank];
    const std::string name = NameOf(static_cast<int>(rank), report.host);
    if (report.sees && !report.why_not_written.empty()) {
      return FoundByAll(absl::FailedPreconditionError(
          absl::StrCat("checkpoint.directory: ", name, " cannot write in ", directory, ": ",
                       report.why_not_written,
                       "; all processes of a job write into it: let the job's user write there on "
                       "all machines, or name another directory")));
    }
    if (!report.sees) blind.push_back(name);
  }
  if (blind.empty()) return absl::OkStatus();
  return FoundByAll(absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory: ", directory, " is not shared: what ", NameOf(0, reports[0].host),
      " made there is not seen by ", absl::StrJoin(blind, ", "),
      ". All processes of a job write into one directory: name one on a file system that is "
      "mounted at the same path on all machines")));
}

}  // namespace

absl::Status CheckIsShared(const std::string& directory, Communicator& communicator,
                           FileSystem* files, absl::Duration patience) {
  const int rank = communicator.rank();
  std::string name = absl::StrCat(kPrefix, NewRunName());
  const auto token = [&](int of) { return JoinPath(directory, absl::StrCat(name, "-", of)); };
  absl::Status written;
  const absl::Cleanup remove = [&] { files->RemoveFile(token(rank)).IgnoreError(); };
  if (rank == 0) written = WriteFileSynced(files, token(0), "");
  MT_ASSIGN_OR_RETURN(const std::string directory_of_first, OfFirst(&communicator, directory));
  MT_ASSIGN_OR_RETURN(const std::string name_of_first,
                      OfFirst(&communicator, written.ok() ? name : ""));
  Report own{HostName(), true, ""};
  if (rank > 0 && !name_of_first.empty()) {
    name = name_of_first;
    own.sees = Sees(token(0), directory, absl::Now() + patience, files);
    if (own.sees) written = WriteFileSynced(files, token(rank), "");
  }
  const bool passes = absl::IsCancelled(written) || IsDiskFull(written);
  MT_RETURN_IF_ERROR(Agree(&communicator, passes ? written : absl::OkStatus()));
  own.why_not_written = std::string(written.message());

  std::vector<Report> reports;
  MT_RETURN_IF_ERROR(ExchangeBytes(&communicator, Pack(own), [&](int, absl::string_view bytes) {
    reports.push_back(Unpack(bytes));
  }));
  return Judge(directory_of_first, reports);
}

bool IsOfSharedCheck(absl::string_view name) {
  int rank = 0;
  return absl::ConsumePrefix(&name, kPrefix) && name.size() > 33 && name[32] == '-' &&
         absl::SimpleAtoi(name.substr(33), &rank) &&
         std::all_of(name.begin(), name.begin() + 32, absl::ascii_isxdigit);
}

}  // namespace megatrain
