// Counts the work of the functions of expert_half.h and expert_join.h, as layer_work.h does for the
// other templates. The counts follow the kernel calls of their sources and must change with them.
// They assume that tokens choose all experts equally often. `first` and the work of weight
// gradients are as in layer_work.h.
#ifndef MEGATRAIN_ENGINE_MODEL_COST_EXPERT_WORK_H_
#define MEGATRAIN_ENGINE_MODEL_COST_EXPERT_WORK_H_

#include "engine/model/cost/layer_work.h"

namespace megatrain {

// Each function returns the work of one micro-batch in layer shape.layer. REQUIRES: the layer has
// experts and, for the Join functions, a dense unit beside them.

// Returns the work of RouteTokens without its RoutingTotals and, if the layer has no dense unit, of
// FinishExperts. With `backward`, returns that of RouteTokens in the backward pass, without the
// shared unit and its gate.
LayerWork RouteWork(const WorkShape& shape, bool backward);
LayerWork RouterBackwardWork(const WorkShape& shape, bool first);
LayerWork RouterWeightGradientWork(const WorkShape& shape);
// Return the work of one full tile of experts.
LayerWork ExpertsForwardWork(const WorkShape& shape);
LayerWork ExpertsBackwardWork(const WorkShape& shape, bool first);
LayerWork ExpertsWeightGradientWork(const WorkShape& shape);
// Return the work of the dense unit beside the experts and of the norms of both results.
LayerWork JoinForwardWork(const WorkShape& shape);
LayerWork JoinBackwardWork(const WorkShape& shape, bool first);
LayerWork JoinWeightGradientWork(const WorkShape& shape);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_COST_EXPERT_WORK_H_
