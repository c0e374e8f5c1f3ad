#include "server/rpc/reflection_guard.h"

#include <grpc/grpc.h>

#include <string>

#include "absl/strings/match.h"

namespace megatrain {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

class ReflectionInterceptor : public Interceptor {
 public:
  ReflectionInterceptor(const Authenticator* authenticator, ServerRpcInfo* info)
      : authenticator_(authenticator), info_(info) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      Judge(*info_->server_context());
    }
    methods->Proceed();
  }

 private:
  void Judge(grpc::ServerContextBase& context) const {
    if (absl::StartsWith(context.peer(), "unix")) return;
    const absl::Status status = authenticator_->Authenticate(context).status();
    if (status.ok()) return;
    // The handler finds its stream ended.
    grpc_call_cancel_with_status(context.c_call(), GRPC_STATUS_UNAUTHENTICATED,
                                 std::string(status.message()).c_str(), nullptr);
  }

  const Authenticator* const authenticator_;
  ServerRpcInfo* const info_;
};

class ReflectionGuardFactory : public ServerInterceptorFactoryInterface {
 public:
  explicit ReflectionGuardFactory(const Authenticator* authenticator)
      : authenticator_(authenticator) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const bool guarded = absl::StartsWith(info->method(), "/grpc.reflection.");
    return guarded ? new ReflectionInterceptor(authenticator_, info) : nullptr;
  }

 private:
  const Authenticator* const authenticator_;
};

}  // namespace

std::unique_ptr<ServerInterceptorFactoryInterface> GuardReflection(
    const Authenticator* authenticator) {
  return std::make_unique<ReflectionGuardFactory>(authenticator);
}

}  // namespace megatrain
