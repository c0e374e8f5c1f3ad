// Is told of every RPC how it was answered.
#ifndef MEGATRAIN_SERVER_TRANSPORT_REQUEST_OBSERVER_H_
#define MEGATRAIN_SERVER_TRANSPORT_REQUEST_OBSERVER_H_

#include <functional>
#include <string_view>

namespace megatrain {

// `method`: "/megatrain.v1.JobService/GetJob", of a service that is registered. `code`: gRPC's.
// Called from any thread, before the status is sent; must not block.
using RequestObserver = std::function<void(std::string_view method, int code)>;

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_REQUEST_OBSERVER_H_
