#include "server/api/record_cursor.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/job_streams.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

class RecordCursorTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/record_cursor_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::vector<std::string> notes;
    log_ = RecordLog::Open(directory_, {.segment_bytes = 4096, .segments_max = 3}, &notes).value();
  }

  void Append(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(log_->Append(log_->next_sequence(), std::string(100, 'x')).ok());
    }
  }

  std::unique_ptr<RecordCursor> Open(int64_t start, bool follow) {
    RecordsRequest request;
    request.start_sequence = start;
    request.follow = follow;
    request.ended = [this]() -> absl::StatusOr<bool> { return ended_.load(); };
    request.wake = [this] { ++wakes_; };
    return RecordCursor::Open(std::move(request), log_.get()).value();
  }

  // What is there: "5" for a record, "1-4" for missed ones, and how it ended.
  static std::vector<std::string> Drain(RecordCursor* cursor) {
    std::vector<std::string> items;
    for (;;) {
      const StreamNext next = cursor->Advance().value();
      if (next != StreamNext::kMessage) {
        items.push_back(next == StreamNext::kEnd ? "end" : "nothing");
        return items;
      }
      const RecordCursor::Item& item = cursor->front();
      items.push_back(item.missed_first > 0 ? absl::StrCat(item.missed_first, "-", item.missed_last)
                                            : absl::StrCat(item.record.sequence));
      cursor->Pop();
    }
  }

  std::string directory_;
  std::unique_ptr<RecordLog> log_;
  std::atomic<bool> ended_{false};
  std::atomic<int> wakes_{0};
};

TEST_F(RecordCursorTest, EndsAtTheNewestWithoutFollow) {
  Append(3);
  const auto cursor = Open(0, false);
  Append(2);  // came too late
  EXPECT_EQ(wakes_, 0) << "nobody waits for them";
  const std::vector<std::string> items = Drain(cursor.get());
  EXPECT_EQ(items.front(), "1");
  EXPECT_EQ(items.back(), "end");
  EXPECT_GE(cursor->next_sequence(), 4);
}

TEST_F(RecordCursorTest, FollowsUntilTheJobHasEnded) {
  Append(1);
  const auto cursor = Open(1, true);
  EXPECT_THAT(Drain(cursor.get()), ElementsAre("1", "nothing"));
  Append(2);
  EXPECT_EQ(wakes_, 2);
  EXPECT_THAT(Drain(cursor.get()), ElementsAre("2", "3", "nothing"));
  EXPECT_EQ(cursor->next_sequence(), 4);
  Append(1);
  ended_ = true;
  EXPECT_THAT(Drain(cursor.get()), ElementsAre("4", "end"));
}

TEST_F(RecordCursorTest, ClosedLogsEndTheirReaders) {
  const auto cursor = Open(1, true);
  EXPECT_THAT(Drain(cursor.get()), ElementsAre("nothing"));
  Append(1);
  log_->Close();
  EXPECT_EQ(wakes_, 2);
  EXPECT_THAT(Drain(cursor.get()), ElementsAre("1", "end"));
}

TEST_F(RecordCursorTest, StartsWhereItIsTold) {
  Append(5);
  EXPECT_THAT(Drain(Open(4, false).get()), ElementsAre("4", "5", "end"));
  EXPECT_THAT(Drain(Open(6, false).get()), ElementsAre("end"));
  EXPECT_THAT(Drain(Open(6, true).get()), ElementsAre("nothing"));
}

TEST_F(RecordCursorTest, OtherStartsAreRefused) {
  Append(5);
  for (const int64_t start : {int64_t{-1}, int64_t{7}, int64_t{1} << 60}) {
    RecordsRequest request;
    request.start_sequence = start;
    const auto cursor = RecordCursor::Open(std::move(request), log_.get());
    ASSERT_EQ(cursor.status().code(), absl::StatusCode::kInvalidArgument) << start;
    EXPECT_EQ(ReasonOf(cursor.status())->reason, "INVALID_FIELD");
  }
}

TEST_F(RecordCursorTest, ASlowReaderIsToldWhatItMissed) {
  Append(1);
  const auto cursor = Open(1, true);
  EXPECT_THAT(Drain(cursor.get()), ElementsAre("1", "nothing"));
  Append(500);  // the log holds about 90
  const std::vector<std::string> items = Drain(cursor.get());
  // What it had open it may still read; then the gap, then what is left, nothing twice.
  std::vector<int64_t> seen(503, 0);
  bool gap = false;
  for (const std::string& item : items) {
    if (item == "nothing") continue;
    const size_t dash = item.find('-');
    gap = gap || dash != std::string::npos;
    const int64_t from = std::stoll(item);
    const int64_t to = dash == std::string::npos ? from : std::stoll(item.substr(dash + 1));
    for (int64_t i = from; i <= to; ++i) ++seen[i];
  }
  EXPECT_TRUE(gap);
  for (int64_t i = 2; i <= 501; ++i) EXPECT_EQ(seen[i], 1) << i;
  EXPECT_EQ(items.back(), "nothing");
  EXPECT_EQ(items[items.size() - 2], "501");
}

TEST_F(RecordCursorTest, WhatIsGoneAtTheStartIsToldToo) {
  Append(500);
  std::vector<LogRecord> kept;
  ASSERT_TRUE(log_->Read(1)->Next(1, &kept).ok());
  const int64_t first = kept[0].sequence;
  ASSERT_GT(first, 1);
  const std::vector<std::string> items = Drain(Open(1, false).get());
  EXPECT_EQ(items[0], absl::StrCat("1-", first - 1));
  EXPECT_EQ(items[1], absl::StrCat(first));
  // A stream has a message of its own for it.
  const auto source = NewLogSource(Open(1, false));
  v1::StreamLogsResponse message;
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  EXPECT_EQ(message.missed().first_sequence(), 1);
  EXPECT_EQ(message.missed().last_sequence(), first - 1);
  EXPECT_FALSE(message.has_batch());
  EXPECT_EQ(source->next_sequence(), first);
}

TEST_F(RecordCursorTest, AMessageHasAtMostAHundredRecords) {
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(log_->Append(0, R"({"text":"x"})").ok());
  const auto source = NewLogSource(Open(1, false));
  v1::StreamLogsResponse message;
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  ASSERT_EQ(message.batch().lines_size(), kBatchRecordsMax);
  EXPECT_EQ(message.batch().lines(99).sequence(), 100);
  EXPECT_EQ(source->next_sequence(), 101);
  message.Clear();
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  ASSERT_EQ(message.batch().lines_size(), 50);
  EXPECT_EQ(message.batch().lines(0).sequence(), 101);
  EXPECT_EQ(*source->Next(&message), StreamNext::kEnd);
}

TEST_F(RecordCursorTest, ARecordThatIsNotUnderstoodEndsItsStream) {
  Append(1);
  v1::StreamLogsResponse line;
  EXPECT_TRUE(absl::IsDataLoss(NewLogSource(Open(1, false))->Next(&line).status()));
  v1::StreamStepMetricsResponse step;
  EXPECT_TRUE(absl::IsDataLoss(NewStepMetricsSource(Open(1, false))->Next(&step).status()));
}

TEST_F(RecordCursorTest, RecordsComeBeforeTheErrorThatEndsTheirStream) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(log_->Append(0, R"({"text":"x"})").ok());
  RecordsRequest request;
  request.follow = true;
  request.ended = []() -> absl::StatusOr<bool> { return JobNotFound("a1"); };
  request.wake = [] {};
  const auto source = NewLogSource(RecordCursor::Open(std::move(request), log_.get()).value());
  v1::StreamLogsResponse message;
  const absl::StatusOr<StreamNext> next = source->Next(&message);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next, StreamNext::kMessage);
  EXPECT_EQ(message.batch().lines_size(), 2);
  EXPECT_EQ(source->next_sequence(), 3);
  EXPECT_TRUE(absl::IsNotFound(source->Next(&message).status()));
}

TEST_F(RecordCursorTest, RecordsBeforeOneThatCannotBeParsedAreSent) {
  for (const char* const text : {R"({"text":"a"})", R"({"text":"b"})", "no JSON"}) {
    ASSERT_TRUE(log_->Append(0, text).ok());
  }
  const auto source = NewLogSource(Open(1, true));
  v1::StreamLogsResponse message;
  EXPECT_EQ(source->Next(&message).value(), StreamNext::kMessage);
  ASSERT_EQ(message.batch().lines_size(), 2);
  EXPECT_EQ(message.batch().lines(1).text(), "b");
  EXPECT_EQ(source->next_sequence(), 3);
  EXPECT_TRUE(absl::IsDataLoss(source->Next(&message).status()));
}

TEST_F(RecordCursorTest, StepsBeforeOneThatCannotBeParsedAreSent) {
  ASSERT_TRUE(log_->Append(1, R"({"step":1,"loss":2})").ok());
  ASSERT_TRUE(log_->Append(2, "no JSON").ok());
  const auto source = NewStepMetricsSource(Open(1, true));
  v1::StreamStepMetricsResponse message;
  EXPECT_EQ(source->Next(&message).value(), StreamNext::kMessage);
  EXPECT_EQ(message.batch().records_size(), 1);
  EXPECT_FALSE(source->Next(&message).ok());
}

TEST_F(RecordCursorTest, ACursorWhoseJobIsDeletedSaysSo) {
  Append(1);
  for (const bool follow : {false, true}) {
    RecordsRequest request;
    request.follow = follow;
    bool gone = false;
    request.ended = [&gone]() -> absl::StatusOr<bool> {
      if (gone) return JobNotFound("a1");
      return false;
    };
    request.wake = [] {};
    auto opened = RecordCursor::Open(std::move(request), log_.get());
    ASSERT_TRUE(opened.ok()) << opened.status();
    RecordCursor& cursor = **opened;
    ASSERT_EQ(*cursor.Advance(), StreamNext::kMessage);
    gone = true;
    EXPECT_EQ(*cursor.Advance(), StreamNext::kMessage) << "which was read before";
    cursor.Pop();
    const auto next = cursor.Advance();
    if (follow) {
      EXPECT_TRUE(absl::IsNotFound(next.status())) << next.status();
    } else {
      EXPECT_EQ(*next, StreamNext::kEnd) << "nothing more was wanted";
    }
  }
}

}  // namespace
}  // namespace megatrain
