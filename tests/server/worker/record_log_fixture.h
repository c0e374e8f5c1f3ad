// Helpers that the tests of the record log share.
#ifndef MEGATRAIN_TESTS_SERVER_WORKER_RECORD_LOG_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_WORKER_RECORD_LOG_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/worker/record_log.h"

namespace megatrain {

inline std::unique_ptr<RecordLog> OpenLog(const std::string& directory,
                                          const RecordLogOptions& options = {},
                                          std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> ignored;
  auto log = RecordLog::Open(directory, options, notes != nullptr ? notes : &ignored);
  EXPECT_TRUE(log.ok()) << log.status();
  return *std::move(log);
}

inline std::vector<LogRecord> ReadAll(const RecordLog& log, int64_t from = 1) {
  std::vector<LogRecord> records;
  auto reader = log.Read(from);
  EXPECT_TRUE(reader->Next(1 << 20, &records).ok());
  EXPECT_EQ(reader->next_sequence(), std::max(from, log.next_sequence()));
  return records;
}

inline std::vector<std::string> Texts(const std::vector<LogRecord>& records) {
  std::vector<std::string> texts;
  for (const LogRecord& record : records) texts.push_back(record.text);
  return texts;
}

inline std::vector<int64_t> SupersededSteps(const std::vector<LogRecord>& records) {
  std::vector<int64_t> steps;
  for (const LogRecord& record : records) {
    if (record.superseded) steps.push_back(record.step);
  }
  return steps;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_WORKER_RECORD_LOG_FIXTURE_H_
