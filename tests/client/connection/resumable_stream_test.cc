// A stream that is opened again, against a server that follows a script.
#include "client/connection/resumable_stream.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "tests/client/connection/token_socket.h"
#include "tests/client/watch/watch_messages.h"
#include "tests/support/test_directory.h"

namespace megatrain::client {
namespace {

using ::testing::ElementsAre;

// How one call goes: events with these numbers, then the end.
struct ScriptedCall {
  std::vector<int64_t> events;
  grpc::Status end;
};

class ScriptedService : public v1::JobService::Service {
 public:
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    starts.push_back(request->start_sequence());
    NoteToken(*context);
    if (script.empty()) return grpc::Status(grpc::StatusCode::INTERNAL, "one call too many");
    const ScriptedCall call = script.front();
    script.pop_front();
    for (const int64_t event : call.events) {
      writer->Write(EventMessage(event, v1::Job::RUNNING, ""));
    }
    return call.end;
  }

  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest*, v1::Job*) override {
    NoteToken(*context);
    const grpc::Status end = script.front().end;
    script.pop_front();
    return end;
  }

  void NoteToken(const grpc::ServerContext& context) {
    const auto token = context.client_metadata().find("authorization");
    tokens.push_back(token == context.client_metadata().end()
                         ? ""
                         : std::string(token->second.data(), token->second.size()));
  }

  // Each is read and written by one call at a time, and by the test before and after.
  std::deque<ScriptedCall> script;
  std::vector<int64_t> starts;
  std::vector<std::string> tokens;
};

grpc::Status Expired(const std::string& reason = "TOKEN_EXPIRED") {
  google::rpc::ErrorInfo info;
  info.set_domain("megatrain");
  info.set_reason(reason);
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "expired", details.SerializeAsString());
}
grpc::Status Shorter() {
  google::rpc::ErrorInfo info;
  info.set_domain("megatrain");
  info.set_reason("INVALID_FIELD");
  (*info.mutable_metadata())["field"] = "start_sequence";
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "shorter", details.SerializeAsString());
}
grpc::Status Busy() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy"); }

class ResumableStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  // Follows the script from event 1 on.
  absl::Status Run(std::deque<ScriptedCall> script) {
    service_.script = std::move(script);
    Connection connection(*ParseServerAddress("unix:" + socket_));
    return RunOn(&connection);
  }
  absl::Status RunOn(Connection* connection) {
    using Stream = ResumableStream<v1::WatchJobResponse>;
    Stream::Callbacks callbacks;
    callbacks.message = [this](v1::WatchJobResponse message) {
      events_.push_back(message.event().sequence());
    };
    callbacks.lost = [this](const absl::Status&, absl::Duration pause) {
      pauses_.push_back(absl::ToDoubleSeconds(pause));
    };
    callbacks.restored = [this] { ++restored_; };
    callbacks.restarted = [this] { ++restarted_; };
    Stream stream(
        connection,
        [connection](grpc::ClientContext* context, int64_t start) {
          v1::WatchJobRequest request;
          request.set_start_sequence(start);
          return connection->jobs()->WatchJob(context, request);
        },
        std::move(callbacks));
    return stream.Run(1);
  }

  const TestDirectory directory_{TestDirectory::Place::kShort};
  const std::string socket_ = directory_ / "m.sock";
  ScriptedService service_;
  TokenSocket tokens_{socket_ + ".auth"};
  std::unique_ptr<grpc::Server> server_;
  std::vector<int64_t> events_;
  std::vector<double> pauses_;
  int restored_ = 0;
  int restarted_ = 0;
};

TEST_F(ResumableStreamTest, RenewsItsTokenEveryTimeItExpires) {
  const absl::Status status = Run({{{1, 2}, Expired()}, {{3}, Expired()}, {{4}, grpc::Status::OK}});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(events_, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(service_.starts, ElementsAre(1, 3, 4));
  EXPECT_THAT(service_.tokens, ElementsAre("Bearer t1", "Bearer t2", "Bearer t3"));
  EXPECT_TRUE(pauses_.empty()) << "the connection was never lost";
}

TEST_F(ResumableStreamTest, ANewTokenThatIsRefusedTooEndsIt) {
  const absl::Status status = Run({{{1}, Expired()}, {{}, Expired()}, {{2}, grpc::Status::OK}});
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(events_, ElementsAre(1));
  EXPECT_EQ(service_.starts.size(), 2u);
}

// As daemons do that are restarted twice, before the second has sent anything.
TEST_F(ResumableStreamTest, RenewsItsTokenAfterEachLoss) {
  const absl::Status status =
      Run({{{1}, Busy()}, {{}, Expired()}, {{}, Busy()}, {{}, Expired()}, {{2}, grpc::Status::OK}});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(events_, ElementsAre(1, 2));
  EXPECT_EQ(pauses_.size(), 2u);
}

TEST_F(ResumableStreamTest, AnotherTokenIsTriedWhereItMayHelp) {
  for (const char* const reason : {"TOKEN_INVALID", "UNAUTHENTICATED_CALLER"}) {
    const absl::Status status = Run({{{1}, Expired(reason)}, {{2}, grpc::Status::OK}});
    EXPECT_TRUE(status.ok()) << reason << ": " << status;
  }
  const absl::Status status = Run({{{1}, Expired("UNKNOWN_ACCOUNT")}, {{2}, grpc::Status::OK}});
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(events_, ElementsAre(1, 2, 1, 2, 1));
}

TEST_F(ResumableStreamTest, AMessageBeginsTheGrowingPausesAnew) {
  const absl::Status status =
      Run({{{1}, Busy()}, {{}, Busy()}, {{}, Busy()}, {{2}, Busy()}, {{3}, grpc::Status::OK}});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(events_, ElementsAre(1, 2, 3));
  EXPECT_EQ(restored_, 2);
  // Each is a fifth more or less than 0.1, 0.2, 0.4 and again 0.1 seconds.
  ASSERT_EQ(pauses_.size(), 4u);
  EXPECT_GE(pauses_[2], 0.32);
  EXPECT_LE(pauses_[3], 0.12);
}

TEST_F(ResumableStreamTest, OneThatIsStoppedOpensNothingAndMayBeStoppedAgain) {
  Connection connection(*ParseServerAddress("unix:" + socket_));
  ResumableStream<v1::WatchJobResponse> stream(
      &connection,
      [&connection](grpc::ClientContext* context, int64_t) {
        return connection.jobs()->WatchJob(context, v1::WatchJobRequest());
      },
      {});
  stream.Stop();
  EXPECT_TRUE(absl::IsCancelled(stream.Run(1)));
  stream.Stop();
  EXPECT_TRUE(service_.starts.empty());
}

// Callbacks may stop their stream: a view that is left while the server is away.
TEST_F(ResumableStreamTest, OneThatACallbackStopsIsNotOpenedAgain) {
  for (const bool is_lost : {false, true}) {
    service_.script = std::deque<ScriptedCall>{{{1}, Busy()}, {{2}, grpc::Status::OK}};
    service_.starts.clear();
    Connection connection(*ParseServerAddress("unix:" + socket_));
    using Stream = ResumableStream<v1::WatchJobResponse>;
    Stream* running = nullptr;
    int lost = 0;
    Stream::Callbacks callbacks;
    callbacks.message = [&](const v1::WatchJobResponse&) {
      if (!is_lost) running->Stop();
    };
    callbacks.lost = [&](const absl::Status&, absl::Duration) {
      ++lost;
      running->Stop();
    };
    Stream stream(
        &connection,
        [&connection](grpc::ClientContext* context, int64_t start) {
          v1::WatchJobRequest request;
          request.set_start_sequence(start);
          return connection.jobs()->WatchJob(context, request);
        },
        std::move(callbacks));
    running = &stream;
    const absl::Status status = stream.Run(1);
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_EQ(service_.starts.size(), 1u);
    EXPECT_EQ(lost, is_lost ? 1 : 0);
  }
}

TEST_F(ResumableStreamTest, ASeriesThatBecameShorterIsReadFromItsBeginning) {
  const absl::Status status = Run({{{1, 2}, Busy()}, {{}, Shorter()}, {{1}, grpc::Status::OK}});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(events_, ElementsAre(1, 2, 1));
  EXPECT_THAT(service_.starts, ElementsAre(1, 3, 1));
  EXPECT_EQ(restarted_, 1);
}

TEST_F(ResumableStreamTest, WhatIsNoLossEndsIt) {
  absl::Status status = Run({{{}, Busy()}, {{9}, grpc::Status::OK}});
  EXPECT_TRUE(absl::IsUnavailable(status)) << "the server has never answered: " << status;
  status = Run({{{1}, grpc::Status(grpc::StatusCode::NOT_FOUND, "gone")}, {{9}, grpc::Status::OK}});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  status = Run({{{}, Shorter()}, {{9}, grpc::Status::OK}});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << "it began at the beginning: " << status;
  EXPECT_THAT(events_, ElementsAre(1));
  EXPECT_THAT(service_.starts, ElementsAre(1, 1, 1));
  EXPECT_TRUE(pauses_.empty());
  EXPECT_EQ(restarted_, 0);
}

TEST_F(ResumableStreamTest, WhoseServerHasAnsweredACallIsOpenedAgain) {
  Connection connection(*ParseServerAddress("unix:" + socket_));
  service_.script =
      std::deque<ScriptedCall>{{{}, grpc::Status::OK}, {{}, Busy()}, {{1}, grpc::Status::OK}};
  EXPECT_FALSE(connection.has_answered());
  const auto job =
      connection.Call(connection.jobs(), &v1::JobService::Stub::GetJob, v1::GetJobRequest());
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status status = RunOn(&connection);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(events_, ElementsAre(1));
  EXPECT_EQ(pauses_.size(), 1u);
}

// Not a stream, but it goes by the same tokens.
TEST_F(ResumableStreamTest, ACallIsMadeAgainOnceWithANewToken) {
  Connection connection(*ParseServerAddress("unix:" + socket_));
  const auto get = [&](std::deque<ScriptedCall> script) {
    service_.script = std::move(script);
    return connection.Call(connection.jobs(), &v1::JobService::Stub::GetJob, v1::GetJobRequest())
        .status();
  };
  const absl::Status renewed = get({{{}, Expired()}, {{}, grpc::Status::OK}});
  EXPECT_TRUE(renewed.ok()) << renewed;
  EXPECT_THAT(service_.tokens, ElementsAre("Bearer t1", "Bearer t2"));
  const absl::Status refused = get({{{}, Expired()}, {{}, Expired()}, {{}, grpc::Status::OK}});
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  EXPECT_EQ(service_.script.size(), 1u);
}

}  // namespace
}  // namespace megatrain::client
