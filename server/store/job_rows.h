// Converts jobs and their events to rows of the store's tables (job_store_schema.h), and back.
#ifndef MEGATRAIN_SERVER_STORE_JOB_ROWS_H_
#define MEGATRAIN_SERVER_STORE_JOB_ROWS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/store/sqlite_database.h"

namespace megatrain {

// Returns "number, id, ...": all columns of a job but `deleted`, in the order of BindJob and
// ReadJob.
std::string JobColumns();
// Returns "?,?,...": a parameter for each of JobColumns.
std::string JobParameters();

// Binds a job to the next parameters of `statement`. Its Step returns errors of binding. REQUIRES:
// job.file is not null.
void BindJob(const Job& job, SqliteStatement* statement);
// Reads a job from the columns of `row` from `first_column` on. Job::spec is null, and the file has
// no overrides, which have a table of their own. Fields that are not stored have their defaults.
// Returns DataLoss if a state or reason has a name that this version does not know. REQUIRES: the
// row's Step has returned true.
absl::StatusOr<Job> ReadJob(const SqliteStatement& row, int first_column);

// Binds an event to the next parameters of `statement`: sequence, time, from_state, to_state,
// reason, text.
void BindEvent(const JobEvent& event, SqliteStatement* statement);
// Reads an event from the same columns, which begin at 0. Returns DataLoss as ReadJob does.
// REQUIRES: the row's Step has returned true.
absl::StatusOr<JobEvent> ReadEvent(const SqliteStatement& row);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_JOB_ROWS_H_
