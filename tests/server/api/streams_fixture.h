// A job with streams of its steps, read as a client does.
#ifndef MEGATRAIN_TESTS_SERVER_API_STREAMS_FIXTURE_H_
#define MEGATRAIN_TESTS_SERVER_API_STREAMS_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/api/service_fixture.h"

namespace megatrain {

class StreamsTest : public ServiceTest {
 protected:
  // A job that runs.
  std::string Running() {
    const std::string id = Create();
    Move(id, JobState::kPreparing);
    Move(id, JobState::kRunning);
    return id;
  }

  struct Steps {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<v1::StreamStepMetricsResponse>> reader;
    std::vector<int64_t> sequences;
    std::vector<int64_t> steps;
    int64_t next = 1;  // where to start again
    int fell_back = 0;
    int missed = 0;

    // False at the end of the stream.
    bool Read() {
      v1::StreamStepMetricsResponse message;
      if (!reader->Read(&message)) return false;
      for (const v1::StepMetricsRecord& record : message.batch().records()) {
        sequences.push_back(record.sequence());
        if (!record.superseded()) steps.push_back(record.metrics().step());
        next = record.sequence() + 1;
      }
      if (message.has_fell_back()) {
        ++fell_back;
        next = message.fell_back().sequence() + 1;
        std::erase_if(steps,
                      [&](int64_t step) { return step > message.fell_back().checkpoint_step(); });
      }
      missed += message.has_missed();
      EXPECT_TRUE(!message.has_heartbeat() || message.heartbeat().next_sequence() == next);
      return true;
    }
  };

  Steps StreamSteps(const std::string& id, int64_t start, bool follow) {
    Steps steps;
    v1::StreamStepMetricsRequest request;
    request.set_name("jobs/" + id);
    request.set_start_sequence(start);
    request.set_follow(follow);
    steps.context = As("anna");
    steps.reader = jobs_->StreamStepMetrics(steps.context.get(), request);
    steps.next = start == 0 ? 1 : start;
    return steps;
  }
};

inline std::vector<int64_t> UpTo(int64_t last) {
  std::vector<int64_t> numbers;
  for (int64_t i = 1; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_API_STREAMS_FIXTURE_H_
