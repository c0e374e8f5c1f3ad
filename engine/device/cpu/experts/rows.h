// The kernels of the cpu device that gather the rows of tokens for experts, add up the experts'
// results, and compute the gradient by the weights of that sum (see GatherRowsArgs, AddRowsArgs and
// WeighRowsArgs, engine/device/expert_args.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROWS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROWS_H_

#include "engine/base/thread_pool.h"
#include "engine/device/kernels.h"

namespace megatrain {

// These return when the work is done. The bits do not depend on the threads of `pool`, which must
// not be null.
void RunGatherRows(const GatherRowsArgs& args, ThreadPool* pool);
void RunAddRows(const AddRowsArgs& args, ThreadPool* pool);
void RunWeighRows(const WeighRowsArgs& args, ThreadPool* pool);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_EXPERTS_ROWS_H_
