#include "server/transport/reflection_service.h"

#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "megatrain/v1/error_reason.pb.h"
#include "server/jobs/error_reason.h"
#include "server/transport/call_loop.h"
#include "server/transport/error_status.h"
#include "server/transport/rpc_method.h"
#include "server/transport/utf8.h"

namespace megatrain {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using grpc::reflection::v1alpha::FileDescriptorResponse;
using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

// The file, then those it imports, each once.
void AddWithImports(const FileDescriptor& file, std::set<const FileDescriptor*>* added,
                    FileDescriptorResponse* response) {
  if (!added->insert(&file).second) return;
  FileDescriptorProto proto;
  file.CopyTo(&proto);
  proto.SerializeToString(response->add_file_descriptor_proto());
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddWithImports(*file.dependency(i), added, response);
  }
}

void Answer(const FileDescriptor* file, const std::string& asked,
            ServerReflectionResponse* response) {
  if (file == nullptr) {
    response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response->mutable_error_response()->set_error_message(
        absl::StrCat("there is no ", ValidUtf8(asked)));
    return;
  }
  std::set<const FileDescriptor*> added;
  AddWithImports(*file, &added, response->mutable_file_descriptor_response());
}

}  // namespace

ServerReflectionResponse ReflectedApi::Answer(const ServerReflectionRequest& request) const {
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& service : services_) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case ServerReflectionRequest::kFileByFilename:
      megatrain::Answer(pool_->FindFileByName(request.file_by_filename()),
                        request.file_by_filename(), &response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      megatrain::Answer(pool_->FindFileContainingSymbol(request.file_containing_symbol()),
                        request.file_containing_symbol(), &response);
      break;
    case ServerReflectionRequest::kFileContainingExtension: {
      const std::string& name = request.file_containing_extension().containing_type();
      const int number = request.file_containing_extension().extension_number();
      const Descriptor* const type = pool_->FindMessageTypeByName(name);
      const FieldDescriptor* const extension =
          type == nullptr ? nullptr : pool_->FindExtensionByNumber(type, number);
      megatrain::Answer(extension == nullptr ? nullptr : extension->file(),
                        absl::StrCat("extension ", number, " of ", name), &response);
      break;
    }
    case ServerReflectionRequest::kAllExtensionNumbersOfType: {
      const std::string& name = request.all_extension_numbers_of_type();
      const Descriptor* const type = pool_->FindMessageTypeByName(name);
      if (type == nullptr) {
        megatrain::Answer(nullptr, name, &response);
        break;
      }
      std::vector<const FieldDescriptor*> extensions;
      pool_->FindAllExtensions(type, &extensions);
      response.mutable_all_extension_numbers_response()->set_base_type_name(name);
      for (const FieldDescriptor* extension : extensions) {
        response.mutable_all_extension_numbers_response()->add_extension_number(
            extension->number());
      }
      break;
    }
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request asks for nothing");
      break;
  }
  return response;
}

// The one RPC.
class ReflectionService::Method final : public RpcMethod {
 public:
  explicit Method(ReflectionService* service) : service_(service) {}

  void Await() override;

 private:
  ReflectionService* const service_;
};

// Answers a request, then takes the next. Deletes itself.
class ReflectionService::Call {
 public:
  Call(ReflectionService* service, Method* method) : service_(service), method_(method) {
    service_->context_.loop->Opened();
    grpc::ServerCompletionQueue* const queue = service_->context_.loop->queue();
    service_->service_.RequestServerReflectionInfo(&context_, &stream_, queue, queue,
                                                   arrived_.tag());
  }
  ~Call() { service_->context_.loop->Closed(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void Cancel() { context_.TryCancel(); }

 private:
  void Arrived(bool ok) {
    if (!ok) {  // the server stops; of a call that never was there are no other events
      delete this;
      return;
    }
    method_->Await();
    const std::optional<absl::StatusOr<Caller>> caller =
        service_->authenticator_.AuthenticateAtOnce(context_);
    if (caller.has_value()) return Begin(caller->status());
    const absl::Status added = service_->context_.queue->Add(0, [this](const absl::Status& status) {
      Begin(status.ok() ? service_->authenticator_.Authenticate(context_).status() : status);
    });
    if (!added.ok()) Finish(added);
  }
  void Begin(absl::Status status) {
    if (status.ok()) status = service_->Join(this);
    if (!status.ok()) return Finish(status);
    stream_.Read(&request_, read_.tag());
  }
  void Read(bool ok) {
    if (!ok) return Finish(absl::OkStatus());  // all was asked, or the caller is gone
    if (request_.ByteSizeLong() > kRequestBytesMax) {
      return Finish(absl::InvalidArgumentError(
          absl::StrCat("a request of reflection has at most ", kRequestBytesMax, " bytes")));
    }
    stream_.Write(service_->api_.Answer(request_), written_.tag());
  }
  void Written(bool ok) {
    if (!ok) return Finish(absl::CancelledError("the caller went away"));
    stream_.Read(&request_, read_.tag());
  }
  void Finish(const absl::Status& status) {
    request_ = ServerReflectionRequest();
    const grpc::Status told = ToGrpcStatus(status);
    service_->context_.Observe(FullName("ServerReflectionInfo"), told);
    stream_.Finish(told, finished_.tag());
  }
  void Finished(bool) {
    service_->Leave(this);
    delete this;
  }

  ReflectionService* const service_;
  Method* const method_;
  grpc::ServerContext context_;
  ServerReflectionRequest request_;
  grpc::ServerAsyncReaderWriter<ServerReflectionResponse, ServerReflectionRequest> stream_{
      &context_};
  CallEventOf<Call, &Call::Arrived> arrived_{this};
  CallEventOf<Call, &Call::Read> read_{this};
  CallEventOf<Call, &Call::Written> written_{this};
  CallEventOf<Call, &Call::Finished> finished_{this};
};

void ReflectionService::Method::Await() { new Call(service_, this); }

absl::Status ReflectionService::Join(Call* call) {
  MutexLock lock(&mutex_);
  if (stopping_) {
    return WithReason(absl::UnavailableError("the daemon is stopping"),
                      v1::ErrorReason_Name(v1::STOPPING));
  }
  if (calls_.size() >= kCallsMax) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "there are ", kCallsMax, " calls of reflection, as many as may be")),
                      v1::ErrorReason_Name(v1::LIMIT_REACHED),
                      {{"limit", "reflection_calls"}, {"value", absl::StrCat(kCallsMax)}});
  }
  calls_.insert(call);
  return absl::OkStatus();
}

void ReflectionService::Leave(Call* call) {
  MutexLock lock(&mutex_);
  calls_.erase(call);
}

void ReflectionService::Stop() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  for (Call* const call : calls_) call->Cancel();
}

ReflectionService::ReflectionService(std::vector<std::string> services,
                                     const ServiceContext& context)
    : RpcService(context),
      authenticator_(context.authenticator),
      api_(google::protobuf::DescriptorPool::generated_pool(), [&services] {
        services.push_back(ServerReflection::service_full_name());
        return std::move(services);
      }()) {
  Add(std::make_unique<Method>(this));
}

}  // namespace megatrain
