// Watches of a job's changes (JobTable::Watch).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/manager/job_table.h"
#include "tests/server/manager/job_ledger_fixture.h"

namespace megatrain {
namespace {

TEST(JobWatchTest, ASlowReaderLosesNoEvent) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  const std::string id = AddJob(ledger.get())->id;
  int rings = 0;
  const auto watch = ledger->table().Watch(id, 1, [&] { ++rings; });
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
    ASSERT_TRUE(Move(ledger.get(), id, JobState::kQueued).ok());
  }
  EXPECT_EQ(rings, 1) << "until it is polled";
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kCancelled).ok());
  std::vector<int64_t> seen;
  JobWatch::Update update;
  do {
    update = watch->Poll(7);
    for (const JobEvent& event : update.events) seen.push_back(event.sequence);
    EXPECT_EQ(update.ended, !update.more_events);
  } while (update.more_events);
  ASSERT_EQ(seen.size(), 42u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i) + 1);
}

TEST(JobWatchTest, BeginsWhereAskedAndRingsForWhatIsNew) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  const std::string id = AddJob(ledger.get())->id;
  int rings = 0;
  const auto watch = ledger->table().Watch(id, 2, [&] { ++rings; });
  JobWatch::Update update = watch->Poll();
  ASSERT_NE(update.job, nullptr);
  EXPECT_TRUE(update.events.empty());
  EXPECT_FALSE(update.ended);
  EXPECT_EQ(watch->Poll().job, nullptr) << "as before";
  EXPECT_EQ(rings, 0);
  ledger->SetProgress(id, StepOf(3), 1.0);
  EXPECT_EQ(rings, 1);
  update = watch->Poll();
  EXPECT_EQ(update.job->step, 3);
  EXPECT_TRUE(update.events.empty());
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
  EXPECT_EQ(rings, 2);
  EXPECT_THAT(watch->Poll().events.size(), 1u);
}

TEST(JobWatchTest, EventsRingOverAPictureThatWasNotLookedAt) {
  const TestDirectory directory;
  const auto ledger = OpenLedger(directory.path());
  const std::string id = AddJob(ledger.get())->id;
  int rings = 0;
  const auto watch = ledger->table().Watch(id, 2, [&] { ++rings; });
  watch->Poll();
  EXPECT_FALSE(watch->HasEvents());
  ledger->SetProgress(id, StepOf(3), 1.0);
  ledger->SetProgress(id, StepOf(4), 1.0);
  EXPECT_EQ(rings, 1);
  EXPECT_FALSE(watch->HasEvents());
  ASSERT_TRUE(Move(ledger.get(), id, JobState::kPreparing).ok());
  EXPECT_EQ(rings, 2);
  EXPECT_TRUE(watch->HasEvents());
  EXPECT_EQ(watch->Poll().events.size(), 1u);
  EXPECT_FALSE(watch->HasEvents());
}

}  // namespace
}  // namespace megatrain
