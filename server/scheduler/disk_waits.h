// DiskWaits remembers which jobs wait for room on a disk, and when to look again.
//
// Two kinds of jobs wait here: PAUSED ones that met a full disk while they trained, and QUEUED ones
// that met it while they prepared. A job that meets a full disk again before it has finished
// another step is looked at half as often as before, because a quota may keep it from using what is
// free, and each try costs a save.
#ifndef MEGATRAIN_SERVER_SCHEDULER_DISK_WAITS_H_
#define MEGATRAIN_SERVER_SCHEDULER_DISK_WAITS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"

namespace megatrain {

// The time until the first look in a job's first wait, or its first since it finished another step,
// and the longest time between two looks.
inline constexpr absl::Duration kDiskWaitMin = absl::Seconds(10);
inline constexpr absl::Duration kDiskWaitMax = absl::Minutes(10);
// Bytes that must be free beside what is about to be written: for logs, metrics, and the store.
inline constexpr int64_t kDiskMarginBytes = int64_t{64} << 20;

// The bytes that must be free on the disk of a directory.
struct DiskNeed {
  std::string directory;
  int64_t bytes = 0;
};

// Returns what a job needs on its disks: in checkpoint.directory a checkpoint and kDiskMarginBytes;
// in data.cache_directory, output.directory and report.tensorboard, if the job names them,
// kDiskMarginBytes. Returns none if the job's spec is null.
std::vector<DiskNeed> DiskNeedsOf(const Job& job);

// Thread safety: one thread at a time.
class DiskWaits {
 public:
  // Returns the free bytes, on the disk of a directory of the job, that its submitter may use.
  using FreeBytes =
      std::function<absl::StatusOr<int64_t>(const Job& job, const std::string& directory)>;

  // `free_bytes` must not be empty. LookForRoom calls it.
  explicit DiskWaits(FreeBytes free_bytes) : free_bytes_(std::move(free_bytes)) {}

  // Notes that the job waits until there is room for `needs`. Does nothing if it waits already.
  void Add(const Job& job, std::vector<DiskNeed> needs, absl::Time now);
  bool Waits(const std::string& id) const;
  // Ends the job's wait, because it goes on or is no longer paused for its disk. The time between
  // its looks is remembered for the next wait.
  void EndWait(const std::string& id);
  // Forgets a job that has ended.
  void Forget(const std::string& id) { waits_.erase(id); }

  // Returns true if the job does not wait, or if a look at its disks finds room. Returns false
  // without a look if the time of the job's next look has not come. A look sets the time of the
  // next one and does not end the wait. After true, call EndWait if the job goes on: until then, a
  // call before the next look returns false. A disk whose free bytes cannot be read counts as one
  // with room.
  bool LookForRoom(const Job& job, absl::Time now);
  // Returns for people what the job needs, as the last look that found no room has seen it; before
  // such a look, the first of the needs given to Add, or "a disk is full" if there were none.
  // Returns "" if the job has not waited since it was last forgotten.
  std::string Text(const std::string& id) const;
  // Returns the earliest time of a waiting job's next look; nullopt if no job waits.
  std::optional<absl::Time> NextLook() const;

 private:
  struct Wait {
    bool waiting = false;
    std::vector<DiskNeed> needs;
    int64_t step = 0;
    absl::Duration interval = kDiskWaitMin;
    absl::Time look;
    std::string text;
  };

  const FreeBytes free_bytes_;
  std::map<std::string, Wait> waits_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_SCHEDULER_DISK_WAITS_H_
