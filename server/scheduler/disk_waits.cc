#include "server/scheduler/disk_waits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

std::string TextOf(const DiskNeed& need) {
  return absl::StrCat("the disk of ", need.directory, " is full: ", FormatBytesShort(need.bytes),
                      " are needed");
}

}  // namespace

std::vector<DiskNeed> DiskNeedsOf(const Job& job) {
  std::vector<DiskNeed> needs;
  if (job.spec == nullptr) return needs;
  needs.push_back({job.spec->checkpoint.directory, job.checkpoint_bytes + kDiskMarginBytes});
  if (!job.spec->data.cache_directory.empty()) {
    needs.push_back({job.spec->data.cache_directory, kDiskMarginBytes});
  }
  if (!job.spec->output.directory.empty()) {
    needs.push_back({job.spec->output.directory, kDiskMarginBytes});
  }
  if (!job.spec->report.tensorboard.empty()) {
    needs.push_back({job.spec->report.tensorboard, kDiskMarginBytes});
  }
  return needs;
}

void DiskWaits::Add(const Job& job, std::vector<DiskNeed> needs, absl::Time now) {
  const auto [at, is_new] = waits_.try_emplace(job.id);
  Wait& wait = at->second;
  if (wait.waiting) return;
  const bool further = is_new || job.step > wait.step;
  wait.waiting = true;
  wait.needs = std::move(needs);
  wait.step = job.step;
  wait.interval = further ? kDiskWaitMin : std::min(2 * wait.interval, kDiskWaitMax);
  wait.look = now + wait.interval;
  wait.text = wait.needs.empty() ? std::string("a disk is full") : TextOf(wait.needs.front());
}

bool DiskWaits::Waits(const std::string& id) const {
  const auto found = waits_.find(id);
  return found != waits_.end() && found->second.waiting;
}

void DiskWaits::EndWait(const std::string& id) {
  const auto found = waits_.find(id);
  if (found != waits_.end()) found->second.waiting = false;
}

bool DiskWaits::LookForRoom(const Job& job, absl::Time now) {
  const auto found = waits_.find(job.id);
  if (found == waits_.end() || !found->second.waiting) return true;
  Wait& wait = found->second;
  // A look that is farther off than that was set before the clock was set back.
  if (now < wait.look && wait.look - now <= wait.interval) return false;
  wait.look = now + wait.interval;
  for (const DiskNeed& need : wait.needs) {
    const absl::StatusOr<int64_t> free = free_bytes_(job, need.directory);
    if (free.ok() && *free < need.bytes) {
      wait.text = absl::StrCat(TextOf(need), ", ", FormatBytesShort(*free), " are free");
      return false;
    }
  }
  return true;
}

std::string DiskWaits::Text(const std::string& id) const {
  const auto found = waits_.find(id);
  return found == waits_.end() ? "" : found->second.text;
}

std::optional<absl::Time> DiskWaits::NextLook() const {
  std::optional<absl::Time> next;
  for (const auto& [id, wait] : waits_) {
    if (wait.waiting && (!next.has_value() || wait.look < *next)) next = wait.look;
  }
  return next;
}

}  // namespace megatrain
