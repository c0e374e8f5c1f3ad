#include "server/scheduler/queue_policy.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <tuple>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

size_t DevicesOf(const QueuedJob& job, int there_are) {
  const int can_have =
      job.own_devices.empty() ? there_are : static_cast<int>(job.own_devices.size());
  return static_cast<size_t>(std::min(job.devices, can_have));
}

double DeviceSeconds(std::optional<double> seconds, size_t devices) {
  return seconds.value_or(kUnknownJobSeconds) * static_cast<double>(devices);
}

// All queued jobs in the order of their turns. `is_held` tells those that wait for something of
// their own: they do not use up their users' turns.
std::vector<const QueuedJob*> OrderTurns(const QueueSnapshot& snapshot,
                                         absl::FunctionRef<bool(const QueuedJob&)> is_held) {
  // Priority, highest first -> user -> jobs in the order of submission.
  std::map<int, std::map<int64_t, std::deque<const QueuedJob*>>, std::greater<>> waiting;
  std::vector<const QueuedJob*> by_number;
  for (const QueuedJob& job : snapshot.queued) by_number.push_back(&job);
  std::sort(by_number.begin(), by_number.end(),
            [](const QueuedJob* a, const QueuedJob* b) { return a->number < b->number; });
  for (const QueuedJob* job : by_number) waiting[job->priority][job->uid].push_back(job);

  std::map<int64_t, double> use = snapshot.use_seconds;
  for (const ActiveJob& job : snapshot.active) {
    use[job.uid] += DeviceSeconds(job.seconds, job.devices.size());
  }
  std::vector<const QueuedJob*> turns;
  for (auto& [priority, users] : waiting) {
    while (!users.empty()) {
      const auto next =
          std::min_element(users.begin(), users.end(), [&use](const auto& a, const auto& b) {
            return std::make_tuple(use[a.first], a.second.front()->number) <
                   std::make_tuple(use[b.first], b.second.front()->number);
          });
      const QueuedJob* const job = next->second.front();
      turns.push_back(job);
      next->second.pop_front();
      if (next->second.empty()) users.erase(next);
      if (!is_held(*job)) {
        use[job->uid] += DeviceSeconds(job->seconds, DevicesOf(*job, snapshot.devices.count));
      }
    }
  }
  return turns;
}

// When jobs can start, one after the other, on the devices there are.
class Timeline {
 public:
  explicit Timeline(const QueueSnapshot& snapshot)
      : free_(static_cast<size_t>(snapshot.devices.count), snapshot.now) {
    for (const ActiveJob& job : snapshot.active) {
      for (const int device : job.devices)
        free_.at(static_cast<size_t>(device)) =
            job.seconds.has_value() ? std::optional(snapshot.now + absl::Seconds(*job.seconds))
                                    : std::nullopt;
    }
  }

  // Nothing if a device's time is not known: it might be among the first to become free.
  std::optional<absl::Time> Place(const QueuedJob& job) {
    std::vector<size_t> taken(job.own_devices.begin(), job.own_devices.end());
    if (taken.empty()) {
      taken.resize(free_.size());
      std::iota(taken.begin(), taken.end(), 0);
    }
    // Nothing is the least.
    std::stable_sort(taken.begin(), taken.end(),
                     [this](size_t a, size_t b) { return free_[a] < free_[b]; });
    taken.resize(DevicesOf(job, static_cast<int>(free_.size())));
    std::optional<absl::Time> start = free_[taken.front()];
    for (const size_t device : taken) {
      start = start.has_value() && free_[device].has_value() ? std::max(start, free_[device])
                                                             : std::nullopt;
    }
    for (const size_t device : taken) {
      free_[device] = start.has_value() && job.seconds.has_value()
                          ? std::optional(*start + absl::Seconds(*job.seconds))
                          : std::nullopt;
    }
    return start;
  }

 private:
  std::vector<std::optional<absl::Time>> free_;
};

// The devices and the memory that are free, and not kept for a job that waits.
class FreeResources {
 public:
  explicit FreeResources(const QueueSnapshot& snapshot) : snapshot_(snapshot) {
    std::set<int> busy;
    for (const ActiveJob& job : snapshot.active)
      busy.insert(job.devices.begin(), job.devices.end());
    // Those that a paused job will go on on come last.
    for (const bool paused : {false, true}) {
      for (const std::vector<int>& group : snapshot.devices.ByMemory()) {
        for (const int device : group) {
          if (busy.count(device) == 0 && (snapshot.paused_devices.count(device) == 1) == paused) {
            devices_.push_back(device);
          }
        }
      }
    }
    bytes_ = snapshot.pool_bytes;
    for (const auto& [uid, bytes] : snapshot.pool_paused_bytes) bytes_ -= bytes;
    for (const ActiveJob& job : snapshot.active) bytes_ -= job.pool_bytes;
  }

  bool has_device() const { return !devices_.empty(); }
  bool HasDevices(const QueuedJob& job) const {
    return Choose(job).size() == DevicesOf(job, snapshot_.devices.count);
  }
  bool HasBytes(const QueuedJob& job) const {
    return snapshot_.pool_bytes == 0 || job.pool_bytes <= bytes_;
  }
  int64_t bytes() const { return bytes_; }
  // Takes what there is of what the job needs, and returns the devices.
  std::vector<int> Take(const QueuedJob& job) {
    std::vector<int> taken = Choose(job);
    std::erase_if(devices_, [&](int device) {
      return std::find(taken.begin(), taken.end(), device) != taken.end();
    });
    bytes_ -= std::min(job.pool_bytes, std::max<int64_t>(0, bytes_));
    std::sort(taken.begin(), taken.end());
    return taken;
  }

 private:
  std::vector<int> Choose(const QueuedJob& job) const {
    std::vector<int> chosen = devices_;
    if (!job.own_devices.empty()) {
      std::erase_if(chosen, [&](int device) {
        return std::find(job.own_devices.begin(), job.own_devices.end(), device) ==
               job.own_devices.end();
      });
    }
    chosen.resize(std::min(chosen.size(), DevicesOf(job, snapshot_.devices.count)));
    return chosen;
  }

  const QueueSnapshot& snapshot_;
  std::vector<int> devices_;  // in the order in which they are given
  int64_t bytes_ = 0;
};

QueuePlace HeldPlace(WaitingReason reason, std::string text) {
  QueuePlace place;
  place.waiting = reason;
  place.text = std::move(text);
  return place;
}

// What users have of what one user may have.
class UserShares {
 public:
  explicit UserShares(const QueueSnapshot& snapshot)
      : limits_(snapshot.limits), paused_(snapshot.pool_paused_bytes), held_(paused_) {
    for (const ActiveJob& job : snapshot.active) {
      Start(job.uid, job.pool_bytes, job.devices.size());
    }
  }

  void Start(int64_t uid, int64_t pool_bytes, size_t devices) {
    ++running_[uid];
    devices_[uid] += static_cast<int64_t>(devices);
    held_[uid] += pool_bytes;
  }

  // Why the job cannot start: not before its user does something about paused jobs; empty: it can.
  std::string HeldByPaused(const QueuedJob& job) const {
    return MemoryText(job, paused_, "paused jobs keep");
  }
  // The same, not before a job of its user has ended.
  std::string HeldByActive(const QueuedJob& job, size_t devices) const {
    const int64_t running = Of(running_, job.uid);
    if (limits_.running_jobs > 0 && running >= limits_.running_jobs) {
      return absl::StrCat("its user has ", running, " running of ", limits_.running_jobs, " (",
                          kRunningJobsLimit, ")");
    }
    const int64_t has = Of(devices_, job.uid);
    if (limits_.devices > 0 && has + static_cast<int64_t>(devices) > limits_.devices) {
      return absl::StrCat("needs ", devices, devices == 1 ? " device" : " devices",
                          "; its user's other jobs have ", has, " of the ", limits_.devices,
                          " a user may have (", kDevicesLimit, ")");
    }
    return MemoryText(job, held_, "other jobs hold");
  }

 private:
  std::string MemoryText(const QueuedJob& job, const std::map<int64_t, int64_t>& by_user,
                         const char* who) const {
    const int64_t taken = Of(by_user, job.uid);
    if (limits_.host_bytes == 0 || job.pool_bytes == 0 ||
        job.pool_bytes + taken <= limits_.host_bytes) {
      return "";
    }
    if (job.pool_bytes > limits_.host_bytes) {
      return absl::StrCat("needs ", FormatBytesShort(job.pool_bytes),
                          " of host memory; a user may have ", FormatBytesShort(limits_.host_bytes),
                          " (", kHostMemoryLimit,
                          "): submit it again with a smaller engine.host_memory");
    }
    return absl::StrCat("needs ", FormatBytesShort(job.pool_bytes), " of host memory; its user's ",
                        who, " ", FormatBytesShort(taken), " of the ",
                        FormatBytesShort(limits_.host_bytes), " a user may have (",
                        kHostMemoryLimit, ")");
  }

  static int64_t Of(const std::map<int64_t, int64_t>& by_user, int64_t uid) {
    const auto found = by_user.find(uid);
    return found == by_user.end() ? 0 : found->second;
  }

  const UserLimits limits_;
  const std::map<int64_t, int64_t> paused_;  // bytes by uid
  std::map<int64_t, int64_t> held_;
  std::map<int64_t, int64_t> running_;  // jobs by uid
  std::map<int64_t, int64_t> devices_;
};

// Returns the text of the first job that waits for others to end: what it waits for.
std::string NextText(const QueuedJob& job, const QueueSnapshot& snapshot,
                     const FreeResources& free) {
  if (snapshot.devices.count == 1) return "is next; another job has the device";
  if (free.HasDevices(job)) {
    return absl::StrCat("is next; needs ", FormatBytesShort(job.pool_bytes),
                        " of host memory, and ", FormatBytesShort(free.bytes()), " are free");
  }
  if (!job.own_devices.empty()) {
    const auto name = [&](std::string* out, int device) {
      out->append(snapshot.devices.Name(device));
    };
    const std::string names = absl::StrJoin(job.own_devices, ", ", name);
    const size_t devices = DevicesOf(job, snapshot.devices.count);
    if (devices == job.own_devices.size()) {
      return absl::StrCat("is next on ", names, "; another job is there");
    }
    return absl::StrCat("is next; waits for ", devices, " of the ", job.own_devices.size(),
                        " devices on which it fits (", names, ")");
  }
  return absl::StrCat("is next; waits for ", DevicesOf(job, snapshot.devices.count), " of the ",
                      snapshot.devices.count, " devices");
}

// Returns the text of a job that needs more memory than paused jobs leave.
std::string LackText(const QueuedJob& job, const QueueSnapshot& snapshot, int64_t paused_bytes) {
  const std::string needs =
      absl::StrCat("needs ", FormatBytesShort(job.pool_bytes), " of host memory");
  const std::string pool = FormatBytesShort(snapshot.pool_bytes);
  return paused_bytes == 0 || job.pool_bytes > snapshot.pool_bytes
             ? absl::StrCat(needs, ", and the daemon's pool has ", pool)
             : absl::StrCat(needs, "; paused jobs keep ", FormatBytesShort(paused_bytes),
                            " of the ", pool, " there are");
}

std::string AheadText(int ahead) {
  return ahead == 1 ? "1 job comes first" : absl::StrCat(ahead, " jobs come first");
}

}  // namespace

QueueDecision DecideQueue(const QueueSnapshot& snapshot) {
  QueueDecision decision;
  const bool pool_known = snapshot.pool_bytes > 0;
  int64_t paused_bytes = 0;
  for (const auto& [uid, bytes] : snapshot.pool_paused_bytes) paused_bytes += bytes;
  const int64_t unpaused_bytes = snapshot.pool_bytes - paused_bytes;

  FreeResources free(snapshot);
  UserShares shares(snapshot);
  Timeline timeline(snapshot);
  int position = 0;
  std::vector<const QueuedJob*> held;
  // The place of a job that cannot start for a reason of its own; nullopt: it can.
  const auto held_place = [&](const QueuedJob& job) -> std::optional<QueuePlace> {
    if (job.hold != WaitingReason::kNone) return HeldPlace(job.hold, job.hold_text);
    if (pool_known && job.pool_bytes > unpaused_bytes) {
      return HeldPlace(WaitingReason::kHostMemory, LackText(job, snapshot, paused_bytes));
    }
    std::string over = shares.HeldByPaused(job);
    if (over.empty() && free.has_device()) {
      over = shares.HeldByActive(job, DevicesOf(job, snapshot.devices.count));
    }
    if (over.empty()) return std::nullopt;
    return HeldPlace(WaitingReason::kUserLimit, std::move(over));
  };
  for (const QueuedJob* job :
       OrderTurns(snapshot, [&](const QueuedJob& each) { return held_place(each).has_value(); })) {
    std::optional<QueuePlace> held_at =
        snapshot.accepts
            ? held_place(*job)
            : HeldPlace(WaitingReason::kShuttingDown, "the daemon is stopping; the queue is kept");
    if (held_at.has_value()) {
      decision.places[job->id] = *std::move(held_at);
      held.push_back(job);
      continue;
    }
    QueuePlace place;
    place.position = ++position;
    place.predicted_start = timeline.Place(*job);
    if (free.HasDevices(*job) && free.HasBytes(*job)) {
      shares.Start(job->uid, job->pool_bytes, DevicesOf(*job, snapshot.devices.count));
      place.text = "starts now";
      decision.start.push_back({job->id, free.Take(*job)});
    } else {
      const int ahead = position - static_cast<int>(decision.start.size()) - 1;
      place.waiting = ahead == 0 ? WaitingReason::kDeviceBusy : WaitingReason::kBehindOthers;
      place.text = ahead == 0 ? NextText(*job, snapshot, free) : AheadText(ahead);
      free.Take(*job);
    }
    decision.places[job->id] = std::move(place);
  }
  // Those that cannot start come behind those that can.
  for (const QueuedJob* job : held) decision.places[job->id].position = ++position;
  return decision;
}

}  // namespace megatrain
