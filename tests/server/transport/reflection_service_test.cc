#include "server/transport/reflection_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptorProto;
using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ReflectionServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    context_ = As("");
    stub_ = ServerReflection::NewStub(Channel());
    stream_ = stub_->ServerReflectionInfo(context_.get());
  }
  void TearDown() override {
    stream_->WritesDone();
    ServerReflectionResponse none;
    EXPECT_FALSE(stream_->Read(&none));
    EXPECT_TRUE(stream_->Finish().ok());
    ServiceTest::TearDown();
  }

  // On one stream, as clients do.
  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    EXPECT_TRUE(stream_->Write(request));
    EXPECT_TRUE(stream_->Read(&response));
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
    return response;
  }
  // By name. Empty if the answer is NOT_FOUND.
  static std::map<std::string, FileDescriptorProto> Files(
      const ServerReflectionResponse& response) {
    std::map<std::string, FileDescriptorProto> files;
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      EXPECT_TRUE(files.try_emplace(file.name(), file).second) << file.name() << " twice";
    }
    if (files.empty()) {
      EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
    }
    return files;
  }
  std::map<std::string, FileDescriptorProto> FilesOfSymbol(const std::string& symbol) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    return Files(Ask(request));
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<ServerReflection::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
      stream_;
};

void Build(const std::string& name, const std::map<std::string, FileDescriptorProto>& files,
           DescriptorPool* pool) {
  if (pool->FindFileByName(name) != nullptr) return;
  ASSERT_TRUE(files.contains(name)) << name << " is missing";
  for (const std::string& import : files.at(name).dependency()) Build(import, files, pool);
  ASSERT_NE(pool->BuildFile(files.at(name)), nullptr) << name;
}

TEST_F(ReflectionServiceTest, ListsTheServices) {
  ServerReflectionRequest request;
  request.set_list_services("*");
  const ServerReflectionResponse response = Ask(request);
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names, UnorderedElementsAre("megatrain.v1.JobService", "megatrain.v1.NodeService",
                                          "grpc.health.v1.Health",
                                          "grpc.reflection.v1alpha.ServerReflection"));
}

TEST_F(ReflectionServiceTest, AClientCanBuildEveryServiceFromWhatItIsTold) {
  for (const char* service :
       {"megatrain.v1.JobService", "megatrain.v1.NodeService", "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection"}) {
    SCOPED_TRACE(service);
    const std::map<std::string, FileDescriptorProto> files = FilesOfSymbol(service);
    DescriptorPool pool;
    for (const auto& [name, file] : files) Build(name, files, &pool);
    const auto* const built = pool.FindServiceByName(service);
    ASSERT_NE(built, nullptr);
    EXPECT_EQ(built->DebugString(),
              DescriptorPool::generated_pool()->FindServiceByName(service)->DebugString());
  }
}

TEST_F(ReflectionServiceTest, FindsFilesBySymbolAndByName) {
  for (const char* symbol :
       {"megatrain.v1.Job", "megatrain.v1.Job.name", "megatrain.v1.JobService.GetJob"}) {
    EXPECT_FALSE(FilesOfSymbol(symbol).empty()) << symbol;
  }
  EXPECT_THAT(FilesOfSymbol("megatrain.v1.Nothing"), IsEmpty());
  ServerReflectionRequest request;
  request.set_file_by_filename("megatrain/v1/job.proto");
  EXPECT_TRUE(Files(Ask(request)).contains("megatrain/v1/job.proto"));
  request.set_file_by_filename("no/such.proto");
  EXPECT_THAT(Files(Ask(request)), IsEmpty());
}

TEST_F(ReflectionServiceTest, ExtensionsAreThoseOfTheMessage) {
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("megatrain.v1.Job");
  const ServerReflectionResponse none = Ask(request);
  EXPECT_EQ(none.all_extension_numbers_response().base_type_name(), "megatrain.v1.Job");
  EXPECT_EQ(none.all_extension_numbers_response().extension_number_size(), 0);
  request.set_all_extension_numbers_of_type("megatrain.v1.Nothing");
  EXPECT_EQ(Ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_file_containing_extension()->set_containing_type("megatrain.v1.Job");
  request.mutable_file_containing_extension()->set_extension_number(1000);
  EXPECT_THAT(Ask(request).error_response().error_message(), HasSubstr("extension 1000"));
}

TEST_F(ReflectionServiceTest, ARequestForNothingIsToldSo) {
  EXPECT_EQ(Ask(ServerReflectionRequest()).error_response().error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// Of any length the look-up of a name would hold up all calls.
TEST_F(ReflectionServiceTest, LongNamesAreRefused) {
  const auto context = As("");
  const auto stream = stub_->ServerReflectionInfo(context.get());
  ServerReflectionRequest request;
  request.set_file_containing_symbol(std::string(1 << 20, '.'));
  ServerReflectionResponse response;
  EXPECT_TRUE(stream->Write(request));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_file_containing_symbol(std::string(1000, '.'));
  EXPECT_THAT(Files(Ask(request)), IsEmpty());
}

TEST_F(ReflectionServiceTest, AtATimeThereAreNotManyCalls) {
  ServerReflectionRequest request;
  request.set_list_services("*");
  Ask(request);  // that of the fixture is one
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
        stream;
  };
  std::vector<Call> calls(ReflectionService::kCallsMax - 1);
  ServerReflectionResponse response;
  for (Call& call : calls) {
    call.context = As("");
    call.stream = stub_->ServerReflectionInfo(call.context.get());
    ASSERT_TRUE(call.stream->Write(request));
    ASSERT_TRUE(call.stream->Read(&response));
  }
  const auto context = As("");
  const auto stream = stub_->ServerReflectionInfo(context.get());
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(CodeAndReason(stream->Finish()), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  for (Call& call : calls) {
    call.stream->WritesDone();
    EXPECT_TRUE(call.stream->Finish().ok());
  }
}

}  // namespace
}  // namespace megatrain
