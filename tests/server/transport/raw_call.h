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

// A call that stays open. Its methods wait; false: the call has ended or been cut off.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
            const std::string& method)
      : stub_(channel), stream_(stub_.PrepareCall(context, method, &queue_)) {
    stream_->StartCall(nullptr);
    Wait();
  }

  bool Write(const std::string& request) {
    const grpc::Slice slice(request);
    stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Wait();
  }
  bool WritesDone() {
    stream_->WritesDone(nullptr);
    return Wait();
  }
  bool Read(std::string* response) {
    grpc::ByteBuffer received;
    stream_->Read(&received, nullptr);
    if (!Wait()) return false;
    grpc::Slice whole;
    EXPECT_TRUE(received.DumpToSingleSlice(&whole).ok());
    response->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
    return true;
  }
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

// One request, the first response.
inline grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel,
                            grpc::ClientContext* context, const std::string& method,
                            const std::string& request, std::string* response) {
  RawStream stream(channel, context, method);
  if (stream.Write(request) && stream.WritesDone()) stream.Read(response);
  return stream.Finish();
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_TRANSPORT_RAW_CALL_H_
