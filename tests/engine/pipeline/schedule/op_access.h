// AccessOf says what an operation reads and writes, by what StepRunner does to carry it out
// (engine/pipeline/step_runner.cc, step_updates.cc). It is written apart from the builders, whose
// declarations are held to it: a wait is derived from a declaration, and one that is missing shows
// as a race on some machines only.
#ifndef MEGATRAIN_TESTS_ENGINE_PIPELINE_SCHEDULE_OP_ACCESS_H_
#define MEGATRAIN_TESTS_ENGINE_PIPELINE_SCHEDULE_OP_ACCESS_H_

#include <cstddef>
#include <set>
#include <utility>

#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {

struct OpAccess {
  using Resources = std::set<std::pair<ResourceKind, int>>;  // kind, index

  // Shared: others that only read it may run at the same time.
  Resources reads;
  // Exclusive: overwritten, or read and changed.
  Resources writes;
};

// Returns the access of operation `at` of the schedule. `embedding_rows`: the forward pass of this
// schedule reads the rows that the step before has updated ahead of the rest
// (PipelineState::rows_first); only with shape.embedding_from_host.
OpAccess AccessOf(const Schedule& schedule, size_t at, const PipelineShape& shape,
                  bool embedding_rows);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_PIPELINE_SCHEDULE_OP_ACCESS_H_
