// Writes jobs and their events to rows of the store's tables, and reads them.
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

// Binds a job to the next parameters of `statement`. REQUIRES: job.file is not null.
void BindJob(const Job& job, SqliteStatement* statement);
// Reads a job from the columns from `first_column` on. Job::spec is null, and the file has no
// overrides, which have a table of their own. Returns DataLoss if a state or reason has a name that
// this version does not know.
absl::StatusOr<Job> ReadJob(const SqliteStatement& row, int first_column);

// Bind and read an event: the columns sequence, time, from_state, to_state, reason, text, which for
// ReadEvent begin at 0. ReadEvent returns DataLoss as ReadJob does.
void BindEvent(const JobEvent& event, SqliteStatement* statement);
absl::StatusOr<JobEvent> ReadEvent(const SqliteStatement& row);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_JOB_ROWS_H_
