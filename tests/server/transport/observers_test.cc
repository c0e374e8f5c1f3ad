#include "server/transport/observers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "tests/server/api/service_fixture.h"
#include "tests/server/transport/raw_call.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class RequestObserverTest : public ServiceTest {
 protected:
  RequestObserverTest() {
    options_.request_observer = [this](std::string_view method, int code) {
      MutexLock lock(&mutex_);
      ++seen_[absl::StrCat(std::string(method), " ", code)];
    };
  }
  std::map<std::string, int> Seen() {
    MutexLock lock(&mutex_);
    return seen_;
  }

 private:
  Mutex mutex_;
  std::map<std::string, int> seen_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(RequestObserverTest, EveryAnswerIsSeenWithItsCode) {
  const std::string id = Create();
  v1::GetJobRequest request;
  v1::Job job;
  request.set_name("jobs/" + id);
  EXPECT_TRUE(jobs_->GetJob(As("anna").get(), request, &job).ok());
  EXPECT_TRUE(jobs_->GetJob(As("anna").get(), request, &job).ok());
  EXPECT_EQ(jobs_->GetJob(As("bob").get(), request, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_FALSE(jobs_->GetJob(As("nobody").get(), request, &job).ok());
  EXPECT_THAT(Seen(), ElementsAre(Pair("/megatrain.v1.JobService/CreateJob 0", 1),
                                  Pair("/megatrain.v1.JobService/GetJob 0", 2),
                                  Pair("/megatrain.v1.JobService/GetJob 16", 1),
                                  Pair("/megatrain.v1.JobService/GetJob 5", 1)));
}

TEST_F(RequestObserverTest, CallsOfGrpcsOwnServicesAreSeenWithWhatTheirCallersAreTold) {
  std::string response;
  const std::string health = "/grpc.health.v1.Health/Check";
  EXPECT_TRUE(RawCall(Channel(), As("").get(), health, "", &response).ok());
  WaitUntil([&] { return Seen()[health + " 0"] == 1; });
  // Field 4, file_containing_symbol, of 10,000 bytes.
  const std::string too_long = std::string("\x22\x90\x4E", 3) + std::string(10000, '.');
  EXPECT_EQ(RawCall(Channel(), As("").get(), kReflectionMethod, too_long, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  WaitUntil([&] { return Seen()[std::string(kReflectionMethod) + " 3"] == 1; });
}

TEST_F(RequestObserverTest, StreamsAreSeenWhenTheyEnd) {
  const std::string id = Create();
  Move(id, JobState::kCancelled);
  v1::WatchJobRequest request;
  request.set_name("jobs/" + id);
  const auto context = As("anna");
  const auto stream = jobs_->WatchJob(context.get(), request);
  v1::WatchJobResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Seen()["/megatrain.v1.JobService/WatchJob 0"], 1);
}

}  // namespace
}  // namespace megatrain
