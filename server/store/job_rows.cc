#include "server/store/job_rows.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr char kRequestId[] = "request_id";

// Calls `visit` with the name and the field of each column. `JobType` and `FileType` are Job and
// JobFile, const or not.
template <class JobType, class FileType, class Visit>
void VisitColumns(JobType& job, FileType& file, Visit&& visit) {
  visit("number", job.number);
  visit("id", job.id);
  visit("display_name", job.display_name);
  visit("user", job.user);
  visit("uid", job.uid);
  visit(kRequestId, job.request_id);
  visit("file_yaml", file.yaml);
  visit("file_name", file.file_name);
  visit("base_directory", file.base_directory);
  visit("priority", job.priority);
  visit("pool_bytes", job.pool_bytes);
  visit("checkpoint_bytes", job.checkpoint_bytes);
  visit("state", job.state);
  visit("reason", job.reason);
  visit("reason_text", job.reason_text);
  visit("created", job.created);
  visit("updated", job.updated);
  visit("started", job.started);
  visit("ended", job.ended);
  visit("version", job.version);
  visit("attempts", job.attempts);
  visit("step", job.step);
  visit("total_steps", job.total_steps);
  visit("checkpoint_step", job.checkpoint_step);
  visit("release_host", job.release_host);
  visit("host_retained", job.host_retained);
  visit("deaths", job.deaths);
  visit("death_step", job.death_step);
  visit("death_checkpoint_step", job.death_checkpoint_step);
  visit("allow_change", job.allow_change);
}

std::vector<std::string> ColumnNames() {
  std::vector<std::string> names;
  const Job job;
  const JobFile file;
  VisitColumns(job, file, [&names](const char* name, const auto&) { names.push_back(name); });
  return names;
}

struct Binder {
  void operator()(const char*, int64_t value) const { statement->Bind(value); }
  void operator()(const char* name, const std::string& text) const {
    // NULLs are not equal: any number of jobs may have no request id.
    if (text.empty() && name == std::string_view(kRequestId)) {
      statement->Bind(std::nullopt);
    } else {
      statement->Bind(text);
    }
  }
  void operator()(const char*, absl::Time time) const {
    if (time == absl::InfinitePast()) {
      statement->Bind(std::nullopt);
    } else {
      statement->Bind(absl::ToUnixMicros(time));
    }
  }
  void operator()(const char*, const std::vector<std::string>& words) const {
    statement->Bind(absl::StrJoin(words, ","));
  }
  void operator()(const char*, JobState state) const { statement->Bind(JobStateName(state)); }
  void operator()(const char*, JobReason reason) const { statement->Bind(JobReasonName(reason)); }

  SqliteStatement* const statement;
};

absl::Status ReadName(const std::string& name, JobState* state) {
  const std::optional<JobState> known = ParseJobState(name);
  if (!known.has_value()) return absl::DataLossError(absl::StrCat("unknown state \"", name, "\""));
  *state = *known;
  return absl::OkStatus();
}

absl::Status ReadName(const std::string& name, JobReason* reason) {
  const std::optional<JobReason> known = ParseJobReason(name);
  if (!known.has_value()) return absl::DataLossError(absl::StrCat("unknown reason \"", name, "\""));
  *reason = *known;
  return absl::OkStatus();
}

struct Reader {
  void operator()(const char*, int64_t& value) { value = row.Int(column++); }
  void operator()(const char*, int& value) { value = static_cast<int>(row.Int(column++)); }
  void operator()(const char*, bool& value) { value = row.Int(column++) != 0; }
  void operator()(const char*, std::string& text) { text = row.Text(column++); }
  void operator()(const char*, absl::Time& time) {
    time = row.IsNull(column) ? absl::InfinitePast() : absl::FromUnixMicros(row.Int(column));
    ++column;
  }
  void operator()(const char*, std::vector<std::string>& words) {
    words = absl::StrSplit(row.Text(column++), ',', absl::SkipEmpty());
  }
  template <class Named>
  void operator()(const char*, Named& value) {
    status.Update(ReadName(row.Text(column++), &value));
  }

  const SqliteStatement& row;
  int column;
  absl::Status status;  // the first error
};

}  // namespace

std::string JobColumns() { return absl::StrJoin(ColumnNames(), ", "); }

std::string JobParameters() {
  return absl::StrJoin(std::vector<std::string>(ColumnNames().size(), "?"), ",");
}

void BindJob(const Job& job, SqliteStatement* statement) {
  VisitColumns(job, *job.file, Binder{statement});
}

absl::StatusOr<Job> ReadJob(const SqliteStatement& row, int first_column) {
  Job job;
  auto file = std::make_shared<JobFile>();
  Reader reader{row, first_column, absl::OkStatus()};
  VisitColumns(job, *file, reader);
  MT_RETURN_IF_ERROR(reader.status);
  job.file = std::move(file);
  return job;
}

void BindEvent(const JobEvent& event, SqliteStatement* statement) {
  statement->Bind(event.sequence);
  statement->Bind(absl::ToUnixMicros(event.time));
  if (event.from.has_value()) {
    statement->Bind(JobStateName(*event.from));
  } else {
    statement->Bind(std::nullopt);
  }
  statement->Bind(JobStateName(event.to));
  statement->Bind(JobReasonName(event.reason));
  statement->Bind(event.text);
}

absl::StatusOr<JobEvent> ReadEvent(const SqliteStatement& row) {
  JobEvent event;
  event.sequence = row.Int(0);
  event.time = absl::FromUnixMicros(row.Int(1));
  if (!row.IsNull(2)) MT_RETURN_IF_ERROR(ReadName(row.Text(2), &event.from.emplace()));
  MT_RETURN_IF_ERROR(ReadName(row.Text(3), &event.to));
  MT_RETURN_IF_ERROR(ReadName(row.Text(4), &event.reason));
  event.text = row.Text(5);
  return event;
}

}  // namespace megatrain
