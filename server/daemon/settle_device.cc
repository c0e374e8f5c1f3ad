#include "server/daemon/settle_device.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr char kCpu[] = "cpu";
constexpr char kCuda[] = "cuda";
constexpr int64_t kFileBytesMax = 64;

// Nothing: none is remembered.
absl::StatusOr<std::optional<std::string>> ReadRemembered(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(PosixFileSystem(), path, kFileBytesMax);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  // A directory or a longer file, for example. It is not the configuration that is wrong.
  if (absl::IsInvalidArgument(text.status()) || absl::IsOutOfRange(text.status())) {
    return absl::DataLossError(absl::StrCat(text.status().message(), "; remove it"));
  }
  if (!text.ok()) return text.status();
  std::string kind(absl::StripAsciiWhitespace(*text));
  if (kind != kCpu && kind != kCuda) {
    return absl::DataLossError(absl::StrCat(path, ": expects ", kCpu, " or ", kCuda,
                                            ", the device that jobs have begun on, got ", kind,
                                            "; write it, or remove the file if no job has begun"));
  }
  return kind;
}

bool HasBegun(const Job& job) {
  return !IsEnded(job.state) && (job.attempts > 0 || job.step > 0 || job.checkpoint_step > 0);
}

std::vector<JobPtr> BegunJobs(const JobLedger& ledger) {
  std::vector<JobPtr> begun;
  for (const JobPtr& job : ledger.table().All()) {
    if (HasBegun(*job)) begun.push_back(job);
  }
  return begun;
}

absl::Status Refused(const std::string& before, const std::string& kind, const FoundDevice& found,
                     size_t begun) {
  std::string text = absl::StrCat("device: auto finds ", kind);
  if (!found.why_cpu.empty()) absl::StrAppend(&text, " (", found.why_cpu, ")");
  absl::StrAppend(&text, ", and this daemon's jobs ran on ", before);
  if (begun > 0) {
    absl::StrAppend(&text, "; ", begun, " of them have begun and would go on with other bits");
  }
  absl::StrAppend(
      &text, ". It waits for ", before,
      "; to go on without, start it once with --accept-device-change, or write device: ", kind,
      " into the configuration");
  return absl::UnavailableError(text);
}

absl::Status TellJob(const std::string& id, const std::string& text, JobLedger* ledger) {
  return ledger
      ->Change(id,
               [&text](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
                 JobChange change;
                 change.text = text;
                 return change;
               })
      .status();
}

}  // namespace

absl::StatusOr<std::optional<std::string>> SettleDevice(const FoundDevice& found,
                                                        JobLedger* ledger) {
  const std::string kind = found.id == kCpu ? kCpu : kCuda;
  const std::string path = JoinPath(ledger->state_directory(), kDeviceFileName);
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> before, ReadRemembered(path));
  if (before == kind) return std::nullopt;
  if (before.has_value()) {
    const std::vector<JobPtr> begun = BegunJobs(*ledger);
    // Who gains a GPU wants it, unless jobs are in the midst of their steps.
    const bool is_gain = kind == kCuda && begun.empty();
    if (!found.is_named && !found.accepted && !is_gain) {
      return Refused(*before, kind, found, begun.size());
    }
    // The events first: a process that dies in between tells them again, not never.
    for (const JobPtr& job : begun) {
      MT_RETURN_IF_ERROR(
          TellJob(job->id,
                  absl::StrCat("the daemon's device is ", kind, " now and was ", *before,
                               ": from here on the job computes other bits than it would have"),
                  ledger));
    }
  }
  MT_RETURN_IF_ERROR(AtomicWriteFile(PosixFileSystem(), path, absl::StrCat(kind, "\n")));
  return before;
}

}  // namespace megatrain
