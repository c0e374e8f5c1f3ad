// gRPC's reflection service behind the gate. Its messages are not ours to link: gRPC's library has
// them, without headers.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/transport/call_gate.h"
#include "tests/server/api/service_fixture.h"
#include "tests/server/transport/raw_call.h"

namespace megatrain {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptorProto;
using ::testing::UnorderedElementsAre;

// Fields of ServerReflectionRequest and of ServerReflectionResponse.
constexpr int kFileContainingSymbol = 4;
constexpr int kFileDescriptorResponse = 4, kListServicesResponse = 6;

// The texts, bytes or messages that the message `bytes` has in field `number`.
std::vector<std::string> Field(const std::string& bytes, int number) {
  google::protobuf::UnknownFieldSet fields;
  EXPECT_TRUE(fields.ParseFromString(bytes));
  std::vector<std::string> values;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == number) values.push_back(fields.field(i).length_delimited());
  }
  return values;
}

std::string AskForSymbol(const std::string& name) {
  google::protobuf::UnknownFieldSet request;
  request.AddLengthDelimited(kFileContainingSymbol, name);
  std::string bytes;
  EXPECT_TRUE(request.SerializeToString(&bytes));
  return bytes;
}

std::vector<std::string> Services(const std::string& response) {
  std::vector<std::string> names;
  for (const std::string& list : Field(response, kListServicesResponse)) {
    for (const std::string& service : Field(list, 1)) names.push_back(Field(service, 1).at(0));
  }
  return names;
}

void Build(const std::string& name, const std::map<std::string, FileDescriptorProto>& files,
           DescriptorPool* pool) {
  if (pool->FindFileByName(name) != nullptr) return;
  ASSERT_TRUE(files.contains(name)) << name << " is missing";
  for (const std::string& import : files.at(name).dependency()) Build(import, files, pool);
  ASSERT_NE(pool->BuildFile(files.at(name)), nullptr) << name;
}

struct Call {
  explicit Call(const std::shared_ptr<grpc::Channel>& channel)
      : stream(channel, context.get(), kReflectionMethod) {}

  const std::unique_ptr<grpc::ClientContext> context = As("");
  RawStream stream;
};

using ReflectionTest = ServiceTest;

TEST_F(ReflectionTest, AClientCanBuildEveryServiceFromWhatItIsTold) {
  Call call(Channel());
  std::string response;
  ASSERT_TRUE(call.stream.Write(kListServices) && call.stream.Read(&response));
  const std::vector<std::string> services = Services(response);
  EXPECT_THAT(services, UnorderedElementsAre("megatrain.v1.JobService", "megatrain.v1.NodeService",
                                             "grpc.health.v1.Health",
                                             "grpc.reflection.v1alpha.ServerReflection"));
  for (const std::string& service : services) {
    SCOPED_TRACE(service);
    ASSERT_TRUE(call.stream.Write(AskForSymbol(service)) && call.stream.Read(&response));
    std::map<std::string, FileDescriptorProto> files;
    for (const std::string& bytes : Field(Field(response, kFileDescriptorResponse).at(0), 1)) {
      FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(bytes));
      EXPECT_TRUE(files.try_emplace(file.name(), file).second) << file.name() << " twice";
    }
    DescriptorPool pool;
    for (const auto& [name, file] : files) Build(name, files, &pool);
    ASSERT_NE(pool.FindServiceByName(service), nullptr);
    EXPECT_EQ(pool.FindServiceByName(service)->DebugString(),
              DescriptorPool::generated_pool()->FindServiceByName(service)->DebugString());
  }
  EXPECT_TRUE(call.stream.WritesDone());
  EXPECT_TRUE(call.stream.Finish().ok());
}

// With gRPC 1.51 alone the second answer has the first one in it, and so on.
TEST_F(ReflectionTest, AnswersDoNotGrow) {
  Call call(Channel());
  std::string response;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(call.stream.Write(kListServices) && call.stream.Read(&response));
    EXPECT_EQ(Services(response).size(), 4u);
  }
  EXPECT_TRUE(call.stream.WritesDone());
  EXPECT_TRUE(call.stream.Finish().ok());
}

// The look-up of a name takes time that grows with the square of its length.
TEST_F(ReflectionTest, LongNamesAreRefused) {
  std::string response;
  Call call(Channel());
  ASSERT_TRUE(call.stream.Write(AskForSymbol(std::string(1000, '.'))));
  EXPECT_TRUE(call.stream.Read(&response));
  ASSERT_TRUE(call.stream.Write(AskForSymbol(std::string(1 << 20, '.'))));
  EXPECT_FALSE(call.stream.Read(&response));
  EXPECT_EQ(call.stream.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ReflectionTest, AtATimeThereAreNotManyCalls) {
  const auto channel = Channel();
  std::string response;
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i = 0; i < CallGate::kReflectionCallsMax; ++i) {
    calls.push_back(std::make_unique<Call>(channel));
    ASSERT_TRUE(calls.back()->stream.Write(kListServices));
    ASSERT_TRUE(calls.back()->stream.Read(&response));
  }
  EXPECT_EQ(Call(channel).stream.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& call : calls) {
    EXPECT_TRUE(call->stream.WritesDone());
    EXPECT_TRUE(call->stream.Finish().ok());
  }
  // Their places are free again.
  WaitUntil([&] {
    Call call(channel);
    const bool answered = call.stream.Write(kListServices) && call.stream.Read(&response);
    if (answered) call.stream.WritesDone();
    return call.stream.Finish().ok();
  });
}

}  // namespace
}  // namespace megatrain
