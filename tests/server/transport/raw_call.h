// Calls of any method in raw bytes: what gRPC serves without messages that we have.
#ifndef MEGATRAIN_TESTS_SERVER_TRANSPORT_RAW_CALL_H_
#define MEGATRAIN_TESTS_SERVER_TRANSPORT_RAW_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace megatrain {

inline constexpr char kReflectionMethod[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// Field 7 of ServerReflectionRequest: list_services.
inline const std::string kListServices("\x3A\x00", 2);

// One request, the first response.
inline grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel,
                            grpc::ClientContext* context, const std::string& method,
                            const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(context, method, &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  const grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  grpc::ByteBuffer received;
  grpc::Status status;
  stream->StartCall(nullptr);
  if (wait()) {
    stream->WriteLast(sent, grpc::WriteOptions(), nullptr);
    if (wait()) {
      stream->Read(&received, nullptr);
      if (wait()) {
        grpc::Slice whole;
        EXPECT_TRUE(received.DumpToSingleSlice(&whole).ok());
        response->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
      }
    }
  }
  stream->Finish(&status, nullptr);
  wait();
  return status;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_TRANSPORT_RAW_CALL_H_
