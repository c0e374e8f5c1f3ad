// Snapshots of queues for tests, and what the decision about one says.
#ifndef MEGATRAIN_TESTS_SERVER_SCHEDULER_QUEUE_SNAPSHOTS_H_
#define MEGATRAIN_TESTS_SERVER_SCHEDULER_QUEUE_SNAPSHOTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/scheduler/queue_policy.h"

namespace megatrain {

inline const absl::Time kNow = absl::FromUnixSeconds(1700000000);

inline QueuedJob Queued(int64_t number, int64_t uid, int priority = 0) {
  QueuedJob job;
  job.id = "j" + std::to_string(number);
  job.number = number;
  job.uid = uid;
  job.priority = priority;
  return job;
}

inline QueueSnapshot Snapshot(std::vector<QueuedJob> queued) {
  QueueSnapshot snapshot;
  snapshot.now = kNow;
  snapshot.queued = std::move(queued);
  return snapshot;
}

inline ActiveJob Active(int64_t uid, std::optional<double> seconds = std::nullopt,
                        std::vector<int> devices = {0}) {
  ActiveJob job;
  job.uid = uid;
  job.devices = std::move(devices);
  job.seconds = seconds;
  return job;
}

// Returns the ids of the jobs that start.
inline std::vector<std::string> Started(const QueueDecision& decision) {
  std::vector<std::string> ids;
  for (const QueueStart& start : decision.start) ids.push_back(start.id);
  return ids;
}

// Returns the ids of all queued jobs by position.
inline std::vector<std::string> Order(const QueueDecision& decision) {
  std::vector<std::string> order(decision.places.size());
  for (const auto& [id, place] : decision.places) {
    order.at(static_cast<size_t>(place.position - 1)) = id;
  }
  return order;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_SCHEDULER_QUEUE_SNAPSHOTS_H_
