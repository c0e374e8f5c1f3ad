// Routers: the choice of experts, its gradient, and the sums of the auxiliary loss (see RouteArgs,
// RouteBackwardArgs and RouterSumsArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROUTER_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROUTER_H_

#include "engine/base/thread_pool.h"
#include "engine/device/kernels.h"

namespace megatrain {

void RunRoute(const RouteArgs& args, ThreadPool* pool);
void RunRouteBackward(const RouteBackwardArgs& args, ThreadPool* pool);
void RunRouterSums(const RouterSumsArgs& args, ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROUTER_H_
