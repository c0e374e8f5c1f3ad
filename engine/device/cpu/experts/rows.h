// The kernels of the cpu device that gather tokens' rows for experts and add up the experts'
// results (see ExpertRows and the arguments, engine/device/expert_args.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROWS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROWS_H_

#include "engine/base/thread_pool.h"
#include "engine/device/kernels.h"

namespace megatrain {

// These return when the work is done.
void RunGatherRows(const GatherRowsArgs& args, ThreadPool* pool);
void RunAddRows(const AddRowsArgs& args, ThreadPool* pool);
void RunWeighRows(const WeighRowsArgs& args, ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROWS_H_
