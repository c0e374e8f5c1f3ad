#include "server/rpc/request_observer.h"

#include <utility>

namespace megatrain {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

class RequestInterceptor : public Interceptor {
 public:
  RequestInterceptor(const RequestObserver* observer, const char* method)
      : observer_(observer), method_(method) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      (*observer_)(method_, methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  const RequestObserver* const observer_;
  const char* const method_;  // the service's
};

// Lives as long as the server, and so longer than its calls.
class RequestInterceptorFactory : public ServerInterceptorFactoryInterface {
 public:
  explicit RequestInterceptorFactory(RequestObserver observer) : observer_(std::move(observer)) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new RequestInterceptor(&observer_, info->method());
  }

 private:
  const RequestObserver observer_;
};

}  // namespace

std::unique_ptr<ServerInterceptorFactoryInterface> ObserveRequests(RequestObserver observer) {
  return std::make_unique<RequestInterceptorFactory>(std::move(observer));
}

}  // namespace megatrain
