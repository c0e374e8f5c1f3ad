// CallGate decides which calls are let in, by their method and their caller.
//
// | call                        | who is let in                              | open at a time |
// |-----------------------------|--------------------------------------------|----------------|
// | of the API                  | whom the Authenticator knows               | see GrpcServer |
// | grpc.health.v1 Check        | everyone                                   | any number     |
// | grpc.health.v1 Watch        | everyone                                   | 64             |
// | reflection                  | everyone on Unix sockets, on TCP those     | 64             |
// |                             | whom the Authenticator knows               |                |
//
// A call beyond the number that may be open ends as RESOURCE_EXHAUSTED, and a reflection call with
// a request longer than kReflectionRequestBytesMax as INVALID_ARGUMENT.
//
// Calls of the API (UnaryCall, StreamCall) call the gate when they begin. Health and reflection are
// gRPC's own services, whose handlers do not know the gate. The gate sees calls of these services
// through a server interceptor (NewInterceptors). An interceptor of gRPC 1.51 cannot answer a call,
// only cancel it with a status. The caller gets the code and the message of that status, without
// the details of google.rpc.Status.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_TRANSPORT_CALL_GATE_H_
#define MEGATRAIN_SERVER_TRANSPORT_CALL_GATE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/identity/authenticator.h"
#include "server/identity/caller.h"
#include "server/transport/observers.h"

namespace megatrain {

class CallGate {
 public:
  static constexpr size_t kHealthWatchesMax = 64;
  // Each open call of reflection has a thread of gRPC's.
  static constexpr size_t kReflectionCallsMax = 64;
  // The time to look up a name grows with the square of its length; real names are shorter.
  static constexpr size_t kReflectionRequestBytesMax = 1024;

  // `authenticator` must outlive the gate. Both observers are copied, are called from any thread,
  // and may be empty.
  CallGate(const Authenticator* authenticator, RequestObserver request_observer,
           RefusalObserver refusal_observer);
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  // Call the Authenticator's methods of these names, return what they return, and tell the refusal
  // observer of each error. Authenticate and the function that Recheck returns may wait for the
  // account database. AuthenticateAtOnce does not, and returns nullopt if it would have to.
  // Recheck returns null if the caller need not be checked again. Its function must not be called
  // after the gate is destroyed.
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const;
  std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const;
  std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const;

  // Tells the request observer how a call of `method`, "/PACKAGE.SERVICE/RPC", is answered.
  void Observe(std::string_view method, const grpc::Status& status) const;

  // Returns what a ServerBuilder needs to let the gate see calls of health and reflection. The
  // server must be destroyed before the gate.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewInterceptors();

  // Ends open watches of health and calls of reflection as UNAVAILABLE, and later ones as soon as
  // they begin.
  void Stop();

 private:
  struct StockMethod;
  class StockCall;
  class Interceptors;
  static const StockMethod kStockMethods[];

  absl::Status Admit(StockCall* call);
  void Leave(StockCall* call);
  void Tell(const absl::Status& refusal, std::string peer) const;

  const Authenticator* const authenticator_;
  const RequestObserver request_observer_;
  const RefusalObserver refusal_observer_;
  Mutex mutex_;
  std::set<StockCall*> open_ ABSL_GUARDED_BY(mutex_);  // those whose number is bounded
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_CALL_GATE_H_
