#include "server/manager/job_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/jobs/test_job.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

JobEvent Event(int64_t sequence) {
  JobEvent event;
  event.sequence = sequence;
  event.time = TestTime(sequence);
  return event;
}

TEST(JobTableTest, TheNewestEventsAreKept) {
  JobTable table;
  const Job job = TestJob(1);
  table.Put(job, {Event(1)});
  const auto behind = table.Watch(job.id, 1, [] {});
  const auto ahead = table.Watch(job.id, 2, [] {});
  for (int64_t i = 2; i <= kJobEventsKept; ++i) table.Put(job, {Event(i)});
  EXPECT_THAT(ahead->Poll(2000).events, SizeIs(kJobEventsKept - 1));
  EXPECT_EQ(table.Events(job.id, 1, 1).at(0).sequence, 1) << "all of them still";
  for (int64_t i = 1; i <= 5; ++i) table.Put(job, {Event(kJobEventsKept + i)});

  EXPECT_EQ(table.LastEvent(job.id), kJobEventsKept + 5);
  EXPECT_THAT(table.Events(job.id, 1, SIZE_MAX), SizeIs(kJobEventsKept));
  EXPECT_EQ(table.Events(job.id, 1, 1).at(0).sequence, 6) << "the oldest there is";
  EXPECT_EQ(table.Events(job.id, 700, 2).at(1).sequence, 701);
  EXPECT_THAT(table.Events(job.id, kJobEventsKept + 6, 10), IsEmpty());

  JobWatch::Update update = behind->Poll(10);
  EXPECT_EQ(update.missed_first, 1);
  EXPECT_EQ(update.missed_last, 5);
  ASSERT_THAT(update.events, SizeIs(10));
  EXPECT_EQ(update.events[0].sequence, 6);
  EXPECT_TRUE(update.more_events);
  update = behind->Poll(10);
  EXPECT_EQ(update.missed_first, 0) << "said once";
  EXPECT_EQ(update.events.at(0).sequence, 16);
  EXPECT_EQ(table.Watch(job.id, 6, [] {})->Poll(1).missed_first, 0) << "from the oldest there is";
  update = ahead->Poll(10);
  EXPECT_EQ(update.missed_first, 0);
  EXPECT_THAT(update.events, SizeIs(5));
  EXPECT_FALSE(update.more_events);
}

TEST(JobTableTest, AnErasedJobLeavesNothing) {
  JobTable table;
  Job job = TestJob(1, "request");
  table.Put(job, {Event(1)});
  const Job other = TestJob(2);
  table.Put(other, {Event(1)});
  int rings = 0;
  const auto watch = table.Watch(job.id, 1, [&] { ++rings; });
  table.Erase(job.id);
  table.Erase(job.id);
  EXPECT_EQ(rings, 1);
  EXPECT_EQ(table.Find(job.id), nullptr);
  EXPECT_EQ(table.FindRequest(job.uid, "request"), nullptr);
  EXPECT_EQ(table.LastEvent(job.id), 0);
  EXPECT_THAT(table.Events(job.id, 1, 10), IsEmpty());
  EXPECT_THAT(table.All(), SizeIs(1));
  EXPECT_THAT(table.Live(), SizeIs(1));
  EXPECT_EQ(table.Counts().queued, 1);
  EXPECT_TRUE(watch->HasEvents()) << "the next poll tells that it is gone";
  EXPECT_TRUE(watch->Poll().deleted);
  EXPECT_TRUE(table.Watch(job.id, 1, [] {})->Poll().deleted);
  // A job of the same number is another one.
  Job next = TestJob(1);
  next.id = "next";
  table.Put(next, {Event(1)});
  EXPECT_TRUE(watch->Poll().deleted);
  EXPECT_EQ(table.LastEvent("next"), 1);
}

TEST(JobTableTest, EndingsAreThoseOfThisProcessEachOnce) {
  JobTable table;
  Job ended = TestJob(1);
  ended.state = JobState::kSucceeded;
  table.Put(ended, {});  // as the store had it at the start
  EXPECT_THAT(table.Endings(), IsEmpty());
  Job job = TestJob(2);
  table.Put(job, {});
  job.state = JobState::kFailed;
  job.reason = JobReason::kNonFinite;
  table.Put(job, {});
  table.Put(job, {});  // changed once more
  table.Erase(job.id);
  EXPECT_THAT(table.Endings(),
              ElementsAre(Pair(Pair(JobState::kFailed, JobReason::kNonFinite), 1)));
}

TEST(JobTableTest, CountsFollowTheStatesOfJobs) {
  JobTable table;
  const auto counts = [&table] {
    const JobCounts now = table.Counts();
    return std::vector<int>{now.queued, now.active, now.paused, now.ended,
                            static_cast<int>(table.Live().size())};
  };
  Job job = TestJob(1);
  const auto become = [&](JobState state) {
    job.state = state;
    table.Put(job, {});
    return counts();
  };
  table.Put(TestJob(2), {});
  EXPECT_THAT(become(JobState::kQueued), ElementsAre(2, 0, 0, 0, 2));
  for (const JobState active : {JobState::kPreparing, JobState::kRunning, JobState::kPausing}) {
    EXPECT_THAT(become(active), ElementsAre(1, 1, 0, 0, 2)) << JobStateName(active);
  }
  EXPECT_THAT(become(JobState::kPaused), ElementsAre(1, 0, 1, 0, 2));
  EXPECT_THAT(become(JobState::kCancelling), ElementsAre(1, 1, 0, 0, 2));
  EXPECT_THAT(become(JobState::kCancelled), ElementsAre(1, 0, 0, 1, 1));
  table.Erase(job.id);
  EXPECT_THAT(counts(), ElementsAre(1, 0, 0, 0, 1));
}

}  // namespace
}  // namespace megatrain
