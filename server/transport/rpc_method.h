// One RPC of a service, which waits for callers.
#ifndef MEGATRAIN_SERVER_TRANSPORT_RPC_METHOD_H_
#define MEGATRAIN_SERVER_TRANSPORT_RPC_METHOD_H_

#include <memory>
#include <vector>

namespace megatrain {

enum class AnswerOn {
  kLoop,   // for what does not wait for anything, if it is known at once who calls
  kQueue,  // for what waits for a disk: on a thread of the CallQueue
};

class RpcMethod {
 public:
  virtual ~RpcMethod() = default;

  // Lets gRPC have one more call of this method. A call that has come does so itself, so that there
  // is always one. REQUIRES: the server has been started and its CallLoop runs; the method outlives
  // both.
  virtual void Await() = 0;
};

using RpcMethods = std::vector<std::unique_ptr<RpcMethod>>;

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_RPC_METHOD_H_
