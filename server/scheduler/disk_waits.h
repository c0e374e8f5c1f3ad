// Jobs that wait for room on a disk, and when to look again.
//
// A job that runs into a full disk again without having got a step further waits twice as long as
// before: what is free may not be free for it (a quota), and each try costs a save.
#ifndef MEGATRAIN_SERVER_SCHEDULER_DISK_WAITS_H_
#define MEGATRAIN_SERVER_SCHEDULER_DISK_WAITS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"

namespace megatrain {

inline constexpr absl::Duration kDiskWaitMin = absl::Seconds(10);
inline constexpr absl::Duration kDiskWaitMax = absl::Minutes(10);
// Beside what is about to be written: for logs, metrics, and the store.
inline constexpr int64_t kDiskMarginBytes = int64_t{64} << 20;

struct DiskNeed {
  std::string directory;
  int64_t bytes = 0;
};

// Where a job writes, and what it may write there at once, as far as is known.
std::vector<DiskNeed> DiskNeedsOf(const Job& job);

// Thread safety: none.
class DiskWaits {
 public:
  // Bytes free beneath a directory of the job's, asked with the rights of its submitter.
  using FreeBytes =
      std::function<absl::StatusOr<int64_t>(const Job& job, const std::string& directory)>;

  explicit DiskWaits(FreeBytes free_bytes) : free_bytes_(std::move(free_bytes)) {}

  // The job could not write. Without effect if it waits already.
  void Add(const Job& job, std::vector<DiskNeed> needs, absl::Time now);
  bool Waits(const std::string& id) const;
  // It goes on, or somebody else decides; how long it waited is remembered.
  void Remove(const std::string& id);
  // The job has ended.
  void Forget(const std::string& id) { waits_.erase(id); }

  // There is room for the job, or nobody can tell. False until its time has come to look.
  bool HasRoom(const Job& job, absl::Time now);
  // For people: what is missing.
  std::string Text(const std::string& id) const;
  // When to look next; nothing if nothing waits.
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
