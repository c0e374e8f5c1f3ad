// gRPC's health service behind the gate.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/transport/call_gate.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public ServiceTest {
 protected:
  // As somebody who is not known.
  std::string Check(const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    const grpc::Status status = Health::NewStub(Channel())->Check(As("").get(), request, &response);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return "not found";
    EXPECT_TRUE(status.ok()) << status.error_message();
    return HealthCheckResponse::ServingStatus_Name(response.status());
  }
};

TEST_F(HealthServiceTest, SaysWhichServiceServesAndWhetherJobsCanRun) {
  EXPECT_EQ(Check("megatrain.v1.JobService"), "SERVING");
  EXPECT_EQ(Check("megatrain.v1.NodeService"), "SERVING");
  EXPECT_EQ(Check(""), "NOT_SERVING");
  server_->SetReady(true);
  EXPECT_EQ(Check(""), "SERVING");
  server_->SetReady(false);
  EXPECT_EQ(Check(""), "NOT_SERVING");
  EXPECT_EQ(Check("no.such.Service"), "not found");
}

TEST_F(HealthServiceTest, AWatchIsToldOfChanges) {
  const auto context = As("");
  const auto stub = Health::NewStub(Channel());
  const auto watch = stub->Watch(context.get(), HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server_->SetReady(true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  context->TryCancel();
  watch->Finish();
}

TEST_F(HealthServiceTest, StrangersCannotHoldMuch) {
  const auto stub = Health::NewStub(Channel());
  HealthCheckRequest request;
  request.set_service(std::string(1000, 'x'));
  HealthCheckResponse response;
  EXPECT_EQ(stub->Check(As("").get(), request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  struct Watch {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
  };
  std::vector<Watch> watches(CallGate::kHealthWatchesMax);
  for (Watch& watch : watches) {
    watch.context = As("");
    watch.reader = stub->Watch(watch.context.get(), HealthCheckRequest());
    ASSERT_TRUE(watch.reader->Read(&response));
  }
  const auto context = As("");
  EXPECT_EQ(stub->Watch(context.get(), HealthCheckRequest())->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (Watch& watch : watches) {
    watch.context->TryCancel();
    watch.reader->Finish();
  }
  // Their places are free again.
  WaitUntil([&] {
    const auto again = As("");
    const auto reader = stub->Watch(again.get(), HealthCheckRequest());
    const bool watched = reader->Read(&response);
    again->TryCancel();
    reader->Finish();
    return watched;
  });
}

}  // namespace
}  // namespace megatrain
