// Opens the data of a run, with the tokenizer and the prompts that it is to answer.
#ifndef MEGATRAIN_ENGINE_RUN_START_OPEN_DATA_H_
#define MEGATRAIN_ENGINE_RUN_START_OPEN_DATA_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/data/sequences/dataset.h"
#include "engine/run/start/prepare_run.h"
#include "engine/run/start/run_context.h"

namespace megatrain {

// Opens the data, and sets the tokenizer, the data, the prompts and the number of steps of
// `prepared`. In each directory that processes share, the one that leads prepares the data, which
// the others then find there. The day that a chat template sees is data.template_date, else that of
// the run that is resumed, else today in the first process. All processes must call it.
//
// Returns the errors of OpenDataset by way of AsInputError, those of the tokenizer, the prompts,
// TotalSteps and the communicator, Cancelled once the run is asked to end, and FailedPrecondition
// if the processes do not have the same data and prompts. REQUIRES: `prepared` has its session,
// layout and directory_ranks.
absl::Status OpenData(RunContext& run, PreparedRun& prepared);

// Returns lines for people about the records that were left out; none if there are none.
std::vector<std::string> DescribeBadRecords(const DatasetReport& report);

// Turns DataLoss and Aborted from reading data into InvalidArgument with the same message, because
// these codes mean damaged checkpoints and non-finite numbers to the caller of RunTraining. Returns
// any other status as it is.
absl::Status AsInputError(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_OPEN_DATA_H_
