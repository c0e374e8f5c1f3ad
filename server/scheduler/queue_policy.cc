#include "server/scheduler/queue_policy.h"

#include <algorithm>
#include <deque>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

// All queued jobs in the order of their turns.
std::vector<const QueuedJob*> OrderTurns(const QueueSnapshot& snapshot) {
  // Priority, highest first -> user -> jobs in the order of submission.
  std::map<int, std::map<int64_t, std::deque<const QueuedJob*>>, std::greater<>> waiting;
  std::vector<const QueuedJob*> by_number;
  for (const QueuedJob& job : snapshot.queued) by_number.push_back(&job);
  std::sort(by_number.begin(), by_number.end(),
            [](const QueuedJob* a, const QueuedJob* b) { return a->number < b->number; });
  for (const QueuedJob* job : by_number) waiting[job->priority][job->uid].push_back(job);

  std::map<int64_t, double> use = snapshot.use_seconds;
  for (const ActiveJob& job : snapshot.active) {
    use[job.uid] += job.seconds.value_or(kUnknownJobSeconds);
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
      // A job that waits for something of its own does not use up its user's turn.
      if (job->hold == WaitingReason::kNone) {
        use[job->uid] += job->seconds.value_or(kUnknownJobSeconds);
      }
    }
  }
  return turns;
}

// When jobs can start, one after the other, on the slots there are.
class Timeline {
 public:
  explicit Timeline(const QueueSnapshot& snapshot) {
    for (const ActiveJob& job : snapshot.active) {
      free_.push_back(job.seconds.has_value()
                          ? std::optional(snapshot.now + absl::Seconds(*job.seconds))
                          : std::nullopt);
    }
    while (static_cast<int>(free_.size()) < snapshot.slots) free_.push_back(snapshot.now);
  }

  // Nothing if a slot's time is not known: it might be the first to become free.
  std::optional<absl::Time> Place(const QueuedJob& job) {
    const auto first = std::min_element(free_.begin(), free_.end());  // nothing is the least
    const std::optional<absl::Time> start = *first;
    *first = start.has_value() && job.seconds.has_value()
                 ? std::optional(*start + absl::Seconds(*job.seconds))
                 : std::nullopt;
    return start;
  }

 private:
  std::vector<std::optional<absl::Time>> free_;
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
    for (const ActiveJob& job : snapshot.active) Start(job.uid, job.pool_bytes);
  }

  void Start(int64_t uid, int64_t pool_bytes) {
    ++running_[uid];
    held_[uid] += pool_bytes;
  }

  // Why the job cannot start: not before its user does something about paused jobs; empty: it can.
  std::string HeldByPaused(const QueuedJob& job) const {
    return MemoryText(job, paused_, "paused jobs keep");
  }
  // The same, not before a job of its user has ended.
  std::string HeldByActive(const QueuedJob& job) const {
    const auto running = running_.find(job.uid);
    if (limits_.running_jobs > 0 && running != running_.end() &&
        running->second >= limits_.running_jobs) {
      return absl::StrCat("its user has ", running->second, " running of ", limits_.running_jobs,
                          " (", kRunningJobsLimit, ")");
    }
    return MemoryText(job, held_, "other jobs hold");
  }

 private:
  std::string MemoryText(const QueuedJob& job, const std::map<int64_t, int64_t>& by_user,
                         const char* who) const {
    const auto found = by_user.find(job.uid);
    const int64_t taken = found == by_user.end() ? 0 : found->second;
    if (limits_.host_bytes == 0 || job.pool_bytes == 0 ||
        job.pool_bytes + taken <= limits_.host_bytes) {
      return "";
    }
    return absl::StrCat("needs ", FormatBytesShort(job.pool_bytes), " of host memory; its user's ",
                        who, " ", FormatBytesShort(taken), " of the ",
                        FormatBytesShort(limits_.host_bytes), " a user may have (",
                        kHostMemoryLimit, ")");
  }

  const UserLimits limits_;
  const std::map<int64_t, int64_t> paused_;  // bytes by uid
  std::map<int64_t, int64_t> held_;
  std::map<int64_t, int64_t> running_;  // jobs by uid
};

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
  int64_t free_bytes = unpaused_bytes;
  for (const ActiveJob& job : snapshot.active) free_bytes -= job.pool_bytes;
  int free_slots = snapshot.slots - static_cast<int>(snapshot.active.size());
  bool held_up = false;  // by a job that waits for active ones to give memory back

  UserShares shares(snapshot);
  Timeline timeline(snapshot);
  int position = 0;
  std::vector<const QueuedJob*> held;
  for (const QueuedJob* job : OrderTurns(snapshot)) {
    if (!snapshot.accepts) {
      decision.places[job->id] =
          HeldPlace(WaitingReason::kShuttingDown, "the daemon is stopping; the queue is kept");
      held.push_back(job);
      continue;
    }
    if (job->hold != WaitingReason::kNone) {
      decision.places[job->id] = HeldPlace(job->hold, job->hold_text);
      held.push_back(job);
      continue;
    }
    if (pool_known && job->pool_bytes > unpaused_bytes) {
      decision.places[job->id] = HeldPlace(
          WaitingReason::kHostMemory,
          absl::StrCat("needs ", FormatBytesShort(job->pool_bytes),
                       " of host memory; paused jobs keep ", FormatBytesShort(paused_bytes),
                       " of the ", FormatBytesShort(snapshot.pool_bytes), " there are"));
      held.push_back(job);
      continue;
    }
    std::string over = shares.HeldByPaused(*job);
    if (over.empty() && free_slots > 0) over = shares.HeldByActive(*job);
    if (!over.empty()) {
      decision.places[job->id] = HeldPlace(WaitingReason::kUserLimit, std::move(over));
      held.push_back(job);
      continue;
    }
    QueuePlace place;
    place.position = ++position;
    place.predicted_start = timeline.Place(*job);
    const bool fits = !pool_known || job->pool_bytes <= free_bytes;
    if (free_slots > 0 && fits && !held_up) {
      --free_slots;
      free_bytes -= job->pool_bytes;
      shares.Start(job->uid, job->pool_bytes);
      place.text = "starts now";
      decision.start.push_back(job->id);
    } else if (position - static_cast<int>(decision.start.size()) == 1) {
      held_up = held_up || !fits;
      place.waiting = WaitingReason::kDeviceBusy;
      place.text = "is next; another job has the device";
    } else {
      place.waiting = WaitingReason::kBehindOthers;
      place.text = AheadText(position - static_cast<int>(decision.start.size()) - 1);
    }
    decision.places[job->id] = std::move(place);
  }
  // Those that cannot start come behind those that can.
  for (const QueuedJob* job : held) decision.places[job->id].position = ++position;
  return decision;
}

}  // namespace megatrain
