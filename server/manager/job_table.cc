#include "server/manager/job_table.h"

#include <algorithm>
#include <optional>

namespace megatrain {
namespace {

int* CountOf(JobState state, JobCounts* counts) {
  if (IsEnded(state)) return &counts->ended;
  if (IsActive(state)) return &counts->active;
  return state == JobState::kPaused ? &counts->paused : &counts->queued;
}

}  // namespace

void JobTable::Put(Job job, std::vector<JobEvent> events) {
  std::vector<std::shared_ptr<JobWatch::Bell>> bells;
  const bool for_event = !events.empty();
  {
    MutexLock lock(&mutex_);
    Entry& entry = entries_[job.number];
    if (entry.job != nullptr) {
      --*CountOf(entry.job->state, &counts_);
      if (IsEnded(job.state) && !IsEnded(entry.job->state)) ++endings_[{job.state, job.reason}];
    } else {
      numbers_[job.id] = job.number;
      if (!job.request_id.empty()) requests_[{job.uid, job.request_id}] = job.number;
    }
    ++*CountOf(job.state, &counts_);
    if (IsEnded(job.state)) {
      live_.erase(job.number);
    } else {
      live_.insert(job.number);
    }
    for (JobEvent& event : events) entry.events.push_back(std::move(event));
    while (static_cast<int64_t>(entry.events.size()) > kJobEventsKept) entry.events.pop_front();
    entry.job = std::make_shared<const Job>(std::move(job));
    bells = entry.bells;
  }
  for (const auto& bell : bells) bell->Ring(for_event);
}

void JobTable::Erase(const std::string& id) {
  std::vector<std::shared_ptr<JobWatch::Bell>> bells;
  {
    MutexLock lock(&mutex_);
    const auto number = numbers_.find(id);
    if (number == numbers_.end()) return;
    const auto entry = entries_.find(number->second);
    const Job& job = *entry->second.job;
    --*CountOf(job.state, &counts_);
    live_.erase(job.number);
    if (!job.request_id.empty()) requests_.erase({job.uid, job.request_id});
    bells = std::move(entry->second.bells);
    entries_.erase(entry);
    numbers_.erase(number);
  }
  for (const auto& bell : bells) bell->Ring(/*for_event=*/true);
}

const JobTable::Entry* JobTable::FindEntry(const std::string& id) const {
  const auto number = numbers_.find(id);
  return number == numbers_.end() ? nullptr : &entries_.at(number->second);
}

JobPtr JobTable::Find(const std::string& id) const {
  MutexLock lock(&mutex_);
  const Entry* const entry = FindEntry(id);
  return entry == nullptr ? nullptr : entry->job;
}

JobPtr JobTable::FindRequest(int64_t uid, const std::string& request_id) const {
  MutexLock lock(&mutex_);
  const auto found = requests_.find({uid, request_id});
  return found == requests_.end() ? nullptr : entries_.at(found->second).job;
}

std::vector<JobPtr> JobTable::All() const {
  MutexLock lock(&mutex_);
  std::vector<JobPtr> jobs;
  jobs.reserve(entries_.size());
  for (const auto& [number, entry] : entries_) jobs.push_back(entry.job);
  return jobs;
}

std::vector<JobPtr> JobTable::Live() const {
  MutexLock lock(&mutex_);
  std::vector<JobPtr> jobs;
  for (const int64_t number : live_) jobs.push_back(entries_.at(number).job);
  return jobs;
}

std::vector<JobPtr> JobTable::Range(int64_t after, bool descending, size_t count,
                                    const std::function<bool(const Job& job)>& filter) const {
  std::vector<JobPtr> jobs;
  MutexLock lock(&mutex_);
  if (descending) {
    auto at = after == 0 ? entries_.end() : entries_.lower_bound(after);
    while (at != entries_.begin() && jobs.size() < count) {
      --at;
      if (filter(*at->second.job)) jobs.push_back(at->second.job);
    }
  } else {
    for (auto at = entries_.upper_bound(after); at != entries_.end() && jobs.size() < count; ++at) {
      if (filter(*at->second.job)) jobs.push_back(at->second.job);
    }
  }
  return jobs;
}

JobCounts JobTable::Counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

std::map<std::pair<JobState, JobReason>, int64_t> JobTable::Endings() const {
  MutexLock lock(&mutex_);
  return endings_;
}

int64_t JobTable::LastEvent(const std::string& id) const {
  MutexLock lock(&mutex_);
  const Entry* const entry = FindEntry(id);
  return entry == nullptr || entry->events.empty() ? 0 : entry->events.back().sequence;
}

std::vector<JobEvent> JobTable::Events(const std::string& id, int64_t first, size_t count) const {
  MutexLock lock(&mutex_);
  const Entry* const entry = FindEntry(id);
  if (entry == nullptr || entry->events.empty()) return {};
  const int64_t kept = entry->events.front().sequence;
  const size_t begin =
      std::min(static_cast<size_t>(std::max<int64_t>(first - kept, 0)), entry->events.size());
  const size_t end = begin + std::min(count, entry->events.size() - begin);
  return std::vector<JobEvent>(entry->events.begin() + static_cast<std::ptrdiff_t>(begin),
                               entry->events.begin() + static_cast<std::ptrdiff_t>(end));
}

std::unique_ptr<JobWatch> JobTable::Watch(const std::string& id, int64_t first_sequence,
                                          std::function<void()> on_ready) {
  auto bell = std::make_shared<JobWatch::Bell>(std::move(on_ready));
  MutexLock lock(&mutex_);
  // One that was deleted a moment ago is told at the first poll.
  const auto number = numbers_.find(id);
  if (number != numbers_.end()) entries_.at(number->second).bells.push_back(bell);
  return std::unique_ptr<JobWatch>(new JobWatch(this, id, first_sequence, std::move(bell)));
}

JobWatch::~JobWatch() {
  {
    MutexLock lock(&table_->mutex_);
    const auto number = table_->numbers_.find(id_);
    if (number != table_->numbers_.end()) {
      std::erase(table_->entries_.at(number->second).bells, bell_);
    }
  }
  // A ring under way ends first.
  MutexLock lock(&bell_->mutex);
  bell_->on_ready = nullptr;
}

JobWatch::Update JobWatch::Poll(int events_max) {
  // Before the look: a change right behind it rings again.
  bell_->rung.store(Bell::kNot);
  Update update;
  MutexLock lock(&table_->mutex_);
  const JobTable::Entry* const entry = table_->FindEntry(id_);
  if (entry == nullptr) {
    update.deleted = true;
    return update;
  }
  const int64_t kept = entry->events.empty() ? 1 : entry->events.front().sequence;
  const int64_t end = kept + static_cast<int64_t>(entry->events.size());
  if (next_sequence_ < kept) {
    update.missed_first = next_sequence_;
    update.missed_last = kept - 1;
    next_sequence_ = kept;
  }
  while (next_sequence_ < end && static_cast<int>(update.events.size()) < events_max) {
    update.events.push_back(entry->events[static_cast<size_t>(next_sequence_++ - kept)]);
  }
  update.more_events = next_sequence_ < end;
  if (seen_ != entry->job) update.job = entry->job;
  seen_ = entry->job;
  update.ended = IsEnded(entry->job->state) && !update.more_events;
  return update;
}

bool JobWatch::HasEvents() const {
  MutexLock lock(&table_->mutex_);
  const JobTable::Entry* const entry = table_->FindEntry(id_);
  return entry == nullptr ||
         (!entry->events.empty() && next_sequence_ <= entry->events.back().sequence);
}

}  // namespace megatrain
