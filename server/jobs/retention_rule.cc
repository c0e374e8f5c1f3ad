#include "server/jobs/retention_rule.h"

#include <algorithm>
#include <map>
#include <tuple>
namespace megatrain {

bool HoldsCheckpoints(const Job& job) { return job.own_checkpoints && job.checkpoint_step > 0; }

std::vector<JobPtr> JobsToPrune(const std::vector<JobPtr>& jobs, int64_t keep) {
  const auto ended_before = [](const JobPtr& a, const JobPtr& b) {
    return std::tie(a->ended, a->number) < std::tie(b->ended, b->number);
  };
  std::map<int64_t, std::vector<JobPtr>> by_user;
  for (const JobPtr& job : jobs) {
    if (IsEnded(job->state) && !HoldsCheckpoints(*job)) by_user[job->uid].push_back(job);
  }
  std::vector<JobPtr> pruned;
  for (auto& [uid, ended] : by_user) {
    std::sort(ended.begin(), ended.end(), ended_before);
    const auto surplus = static_cast<int64_t>(ended.size()) - keep;
    for (int64_t i = 0; i < surplus; ++i) pruned.push_back(ended[static_cast<size_t>(i)]);
  }
  std::sort(pruned.begin(), pruned.end(), ended_before);
  return pruned;
}

}  // namespace megatrain
