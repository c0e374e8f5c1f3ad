// Routers of the cpu device: the choice of experts, its gradient, and the sums of the auxiliary
// loss (see RouteArgs, RouteBackwardArgs and RouterSumsArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROUTER_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROUTER_H_

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/device/kernels.h"

namespace megatrain {

// Returns an expert's element of args.expert_scales, or 1 if that is null.
inline float ExpertScale(const RouteArgs& args, int64_t expert) {
  if (args.expert_scales == nullptr) return 1.0f;
  return args.dtype == DType::kF32
             ? static_cast<const float*>(args.expert_scales)[expert]
             : Bf16ToFloat(static_cast<const bf16_t*>(args.expert_scales)[expert]);
}

// These return when the work is done. `pool` must not be null.
void RunRoute(const RouteArgs& args, ThreadPool* pool);
void RunRouteBackward(const RouteBackwardArgs& args, ThreadPool* pool);
void RunRouterSums(const RouterSumsArgs& args, ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROUTER_H_
