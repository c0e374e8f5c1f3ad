#include "server/store/job_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/store/job_store_schema.h"

namespace megatrain {
namespace {

constexpr char kLockFileName[] = "megatraind.lock";

absl::Status FileFailure(const char* operation, const std::string& path, int error) {
  const std::string text =
      absl::StrCat("cannot ", operation, " ", path, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

// Owner only: job files and paths of all users are in it.
absl::Status MakePrivateDirectory(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  if (!std::filesystem::create_directories(directory, error) && error) {
    return FileFailure("make the state directory", directory, error.value());
  }
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  if (error) return FileFailure("set the mode of", directory, error.value());
  return absl::OkStatus();
}

absl::StatusOr<int> TakeLock(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kLockFileName);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return FileFailure("open", path, errno);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  close(fd);
  if (error != EWOULDBLOCK) return FileFailure("lock", path, error);
  return absl::FailedPreconditionError(
      absl::StrCat(directory, ": another megatraind uses this state directory (it holds ", path,
                   "); stop it, or give this one a state_directory of its own"));
}

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      path, ": the job store is damaged (", what,
      "). Move this file and its -wal and -shm files away and restore them from a backup; or start "
      "without them: the daemon then knows no job, and checkpoints on disk stay as they are"));
}

absl::Status Advised(const std::string& path, const absl::Status& status) {
  return absl::IsDataLoss(status) ? Damaged(path, status.message()) : status;
}

void BindTime(SqliteStatement* statement, absl::Time time) {
  if (time == absl::InfinitePast()) {
    statement->Bind(std::nullopt);
  } else {
    statement->Bind(absl::ToUnixMicros(time));
  }
}

absl::Time TimeOf(const SqliteStatement& row, int column) {
  return row.IsNull(column) ? absl::InfinitePast() : absl::FromUnixMicros(row.Int(column));
}

// The columns in the order in which BindJob and ReadJob go through them.
constexpr char kColumns[] =
    "number, id, display_name, user, uid, request_id, file_yaml, file_name, base_directory, "
    "priority, pool_bytes, checkpoint_bytes, state, reason, reason_text, created, updated, "
    "started, ended, version, attempts, step, total_steps, checkpoint_step, release_host, "
    "host_retained, deaths, death_step, death_checkpoint_step";
constexpr char kParameters[] = "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?";

void BindJob(SqliteStatement* statement, const Job& job) {
  statement->Bind(job.number);
  statement->Bind(job.id);
  statement->Bind(job.display_name);
  statement->Bind(job.user);
  statement->Bind(job.uid);
  if (job.request_id.empty()) {
    statement->Bind(std::nullopt);  // NULLs are not equal: any number of jobs may have none
  } else {
    statement->Bind(job.request_id);
  }
  statement->Bind(job.file->yaml);
  statement->Bind(job.file->file_name);
  statement->Bind(job.file->base_directory);
  statement->Bind(int64_t{job.priority});
  statement->Bind(job.pool_bytes);
  statement->Bind(job.checkpoint_bytes);
  statement->Bind(JobStateName(job.state));
  statement->Bind(JobReasonName(job.reason));
  statement->Bind(job.reason_text);
  BindTime(statement, job.created);
  BindTime(statement, job.updated);
  BindTime(statement, job.started);
  BindTime(statement, job.ended);
  statement->Bind(job.version);
  statement->Bind(int64_t{job.attempts});
  statement->Bind(job.step);
  statement->Bind(job.total_steps);
  statement->Bind(job.checkpoint_step);
  statement->Bind(int64_t{job.release_host});
  statement->Bind(int64_t{job.host_retained});
  statement->Bind(int64_t{job.deaths});
  statement->Bind(job.death_step);
  statement->Bind(job.death_checkpoint_step);
}

absl::StatusOr<JobState> StateOf(const std::string& name) {
  const std::optional<JobState> state = ParseJobState(name);
  if (!state.has_value()) return absl::DataLossError(absl::StrCat("unknown state \"", name, "\""));
  return *state;
}

absl::StatusOr<JobReason> ReasonOf(const std::string& name) {
  const std::optional<JobReason> reason = ParseJobReason(name);
  if (!reason.has_value()) {
    return absl::DataLossError(absl::StrCat("unknown reason \"", name, "\""));
  }
  return *reason;
}

absl::Status EventMissing(const StoredJob& stored, int64_t sequence) {
  return absl::DataLossError(
      absl::StrCat("job ", stored.job.id, ": event ", sequence, " is missing"));
}

absl::StatusOr<Job> ReadJob(const SqliteStatement& row) {
  Job job;
  auto file = std::make_shared<JobFile>();
  int column = 1;  // after `deleted`
  job.number = row.Int(column++);
  job.id = row.Text(column++);
  job.display_name = row.Text(column++);
  job.user = row.Text(column++);
  job.uid = row.Int(column++);
  job.request_id = row.Text(column++);
  file->yaml = row.Text(column++);
  file->file_name = row.Text(column++);
  file->base_directory = row.Text(column++);
  job.file = std::move(file);
  job.priority = static_cast<int>(row.Int(column++));
  job.pool_bytes = row.Int(column++);
  job.checkpoint_bytes = row.Int(column++);
  MT_ASSIGN_OR_RETURN(job.state, StateOf(row.Text(column++)));
  MT_ASSIGN_OR_RETURN(job.reason, ReasonOf(row.Text(column++)));
  job.reason_text = row.Text(column++);
  job.created = TimeOf(row, column++);
  job.updated = TimeOf(row, column++);
  job.started = TimeOf(row, column++);
  job.ended = TimeOf(row, column++);
  job.version = row.Int(column++);
  job.attempts = static_cast<int>(row.Int(column++));
  job.step = row.Int(column++);
  job.total_steps = row.Int(column++);
  job.checkpoint_step = row.Int(column++);
  job.release_host = row.Int(column++) != 0;
  job.host_retained = row.Int(column++) != 0;
  job.deaths = static_cast<int>(row.Int(column++));
  job.death_step = row.Int(column++);
  job.death_checkpoint_step = row.Int(column++);
  return job;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& directory) {
  MT_RETURN_IF_ERROR(MakePrivateDirectory(directory));
  MT_ASSIGN_OR_RETURN(const int lock_fd, TakeLock(directory));
  std::unique_ptr<JobStore> store(
      new JobStore(absl::StrCat(directory, "/", kJobStoreFileName), lock_fd));
  MutexLock lock(&store->mutex_);
  MT_RETURN_IF_ERROR(Advised(store->path_, store->OpenDatabase()));
  return store;
}

JobStore::~JobStore() {
  {
    MutexLock lock(&mutex_);
    database_.reset();
  }
  close(lock_fd_);
}

absl::Status JobStore::OpenDatabase() {
  // SQLite would make it readable for all; its side files take the mode of this one.
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return FileFailure("open", path_, errno);
  close(fd);

  MT_ASSIGN_OR_RETURN(database_, SqliteDatabase::Open(path_));
  MT_ASSIGN_OR_RETURN(const int64_t version, database_->IntValue("PRAGMA user_version"));
  MT_ASSIGN_OR_RETURN(const int64_t application, database_->IntValue("PRAGMA application_id"));
  MT_ASSIGN_OR_RETURN(const int64_t tables,
                      database_->IntValue("SELECT count(*) FROM sqlite_schema"));
  if (application != kJobStoreApplicationId && (application != 0 || version != 0 || tables != 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_,
                     ": is a database of another program; move it away, or give this daemon a "
                     "state_directory of its own"));
  }
  if (version > kJobStoreVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, ": was written by a newer megatraind (schema version ", version,
        "; this one knows versions up to ", kJobStoreVersion,
        "). Run that version; or move this file and its -wal and -shm files away and restore the "
        "backup that was made before the newer one ran"));
  }
  // Until the write-ahead log is in place, EXTRA: else a power cut could bring back the rollback
  // journal of this very switch, and with it a database without its log.
  MT_RETURN_IF_ERROR(database_->Execute("PRAGMA synchronous=EXTRA"));
  MT_ASSIGN_OR_RETURN(const std::string journal, database_->Value("PRAGMA journal_mode=WAL"));
  if (journal != "wal") {
    return absl::InternalError(
        absl::StrCat(path_, ": its file system does not support a write-ahead log (journal mode \"",
                     journal, "\"); put state_directory on a local disk"));
  }
  MT_RETURN_IF_ERROR(database_->Execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON"));
  MT_ASSIGN_OR_RETURN(const std::string check, database_->Value("PRAGMA integrity_check(1)"));
  if (check != "ok") return absl::DataLossError(check);
  return Migrate(version);
}

absl::Status JobStore::Migrate(int64_t version) {
  for (; version < kJobStoreVersion; ++version) {
    MT_RETURN_IF_ERROR(
        database_->Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
          MT_RETURN_IF_ERROR(database_->Execute(kJobStoreMigrations[version]));
          return database_->Execute(absl::StrCat("PRAGMA application_id=", kJobStoreApplicationId,
                                                 "; PRAGMA user_version=", version + 1));
        }));
  }
  return absl::OkStatus();
}

absl::Status JobStore::Insert(const Job& job, const JobEvent& event) {
  MutexLock lock(&mutex_);
  return Advised(
      path_, database_->Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        MT_ASSIGN_OR_RETURN(SqliteStatement insert,
                            database_->Prepare(absl::StrCat("INSERT INTO jobs (", kColumns,
                                                            ") VALUES (", kParameters, ")")));
        BindJob(&insert, job);
        MT_RETURN_IF_ERROR(insert.Run());
        int64_t position = 0;
        for (const std::string& text : job.file->overrides) {
          MT_ASSIGN_OR_RETURN(SqliteStatement row,
                              database_->Prepare("INSERT INTO overrides VALUES (?,?,?)"));
          row.Bind(job.number);
          row.Bind(position++);
          row.Bind(text);
          MT_RETURN_IF_ERROR(row.Run());
        }
        return WriteEvent(job.number, event);
      }));
}

absl::Status JobStore::Update(const Job& job, const std::vector<JobEvent>& events) {
  MutexLock lock(&mutex_);
  return Advised(
      path_, database_->Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        // What was submitted never changes; the rest is written whole, so that no field is
        // forgotten.
        MT_ASSIGN_OR_RETURN(SqliteStatement update,
                            database_->Prepare(absl::StrCat("UPDATE jobs SET (", kColumns, ") = (",
                                                            kParameters, ") WHERE id = ?")));
        BindJob(&update, job);
        update.Bind(job.id);
        MT_RETURN_IF_ERROR(update.Run());
        if (database_->ChangedRows() == 0) {
          return absl::NotFoundError(absl::StrCat(path_, ": holds no job ", job.id));
        }
        for (const JobEvent& event : events) MT_RETURN_IF_ERROR(WriteEvent(job.number, event));
        if (events.empty() || events.back().sequence <= kJobEventsKept) return absl::OkStatus();
        MT_ASSIGN_OR_RETURN(
            SqliteStatement prune,
            database_->Prepare("DELETE FROM events WHERE job = ? AND sequence <= ?"));
        prune.Bind(job.number);
        prune.Bind(events.back().sequence - kJobEventsKept);
        return prune.Run();
      }));
}

absl::Status JobStore::MarkDeleted(const std::string& id) {
  MutexLock lock(&mutex_);
  return Advised(
      path_, database_->Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        MT_ASSIGN_OR_RETURN(
            SqliteStatement mark,
            database_->Prepare("UPDATE jobs SET deleted = 1, request_id = NULL WHERE id = ?"));
        mark.Bind(id);
        MT_RETURN_IF_ERROR(mark.Run());
        if (database_->ChangedRows() > 0) return absl::OkStatus();
        return absl::NotFoundError(absl::StrCat(path_, ": holds no job ", id));
      }));
}

absl::Status JobStore::Remove(const std::string& id) {
  MutexLock lock(&mutex_);
  return Advised(
      path_, database_->Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
        for (const char* sql :
             {"DELETE FROM events WHERE job = (SELECT number FROM jobs WHERE id = ?)",
              "DELETE FROM overrides WHERE job = (SELECT number FROM jobs WHERE id = ?)",
              "DELETE FROM jobs WHERE id = ?"}) {
          MT_ASSIGN_OR_RETURN(SqliteStatement remove, database_->Prepare(sql));
          remove.Bind(id);
          MT_RETURN_IF_ERROR(remove.Run());
        }
        return absl::OkStatus();
      }));
}

absl::Status JobStore::WriteEvent(int64_t number, const JobEvent& event) {
  MT_ASSIGN_OR_RETURN(SqliteStatement write,
                      database_->Prepare("INSERT INTO events VALUES (?,?,?,?,?,?,?)"));
  write.Bind(number);
  write.Bind(event.sequence);
  write.Bind(absl::ToUnixMicros(event.time));
  if (event.from.has_value()) {
    write.Bind(JobStateName(*event.from));
  } else {
    write.Bind(std::nullopt);
  }
  write.Bind(JobStateName(event.to));
  write.Bind(JobReasonName(event.reason));
  write.Bind(event.text);
  return write.Run();
}

absl::StatusOr<std::vector<StoredJob>> JobStore::ReadAll() {
  MutexLock lock(&mutex_);
  std::vector<StoredJob> jobs;
  const absl::Status status = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    MT_ASSIGN_OR_RETURN(SqliteStatement row,
                        database_->Prepare(absl::StrCat("SELECT deleted, ", kColumns,
                                                        " FROM jobs ORDER BY number")));
    for (;;) {
      MT_ASSIGN_OR_RETURN(const bool more, row.Step());
      if (!more) break;
      absl::StatusOr<Job> job = ReadJob(row);
      if (!job.ok()) {
        return absl::DataLossError(absl::StrCat("job ", row.Text(2), ": ", job.status().message()));
      }
      jobs.push_back({*std::move(job), {}, row.Int(0) != 0});
    }
    for (StoredJob& stored : jobs) {
      MT_RETURN_IF_ERROR(ReadOverrides(&stored));
      MT_RETURN_IF_ERROR(ReadEvents(&stored));
    }
    return absl::OkStatus();
  }();
  if (!status.ok()) return Advised(path_, status);
  return jobs;
}

absl::Status JobStore::ReadOverrides(StoredJob* stored) {
  MT_ASSIGN_OR_RETURN(
      SqliteStatement row,
      database_->Prepare("SELECT text FROM overrides WHERE job = ? ORDER BY position"));
  row.Bind(stored->job.number);
  auto file = std::make_shared<JobFile>(*stored->job.file);
  for (;;) {
    MT_ASSIGN_OR_RETURN(const bool more, row.Step());
    if (!more) break;
    file->overrides.push_back(row.Text(0));
  }
  stored->job.file = std::move(file);
  return absl::OkStatus();
}

absl::Status JobStore::ReadEvents(StoredJob* stored) {
  MT_ASSIGN_OR_RETURN(
      SqliteStatement row,
      database_->Prepare("SELECT sequence, time, from_state, to_state, reason, text "
                         "FROM events WHERE job = ? ORDER BY sequence"));
  row.Bind(stored->job.number);
  for (;;) {
    MT_ASSIGN_OR_RETURN(const bool more, row.Step());
    if (!more) break;
    JobEvent event;
    event.sequence = row.Int(0);
    if (!stored->events.empty() && event.sequence != stored->events.back().sequence + 1) {
      return EventMissing(*stored, stored->events.back().sequence + 1);
    }
    event.time = absl::FromUnixMicros(row.Int(1));
    if (!row.IsNull(2)) {
      MT_ASSIGN_OR_RETURN(event.from, StateOf(row.Text(2)));
    }
    MT_ASSIGN_OR_RETURN(event.to, StateOf(row.Text(3)));
    MT_ASSIGN_OR_RETURN(event.reason, ReasonOf(row.Text(4)));
    event.text = row.Text(5);
    stored->events.push_back(std::move(event));
  }
  if (stored->events.empty()) return EventMissing(*stored, 1);
  const int64_t first = stored->events.front().sequence;
  const bool pruned = static_cast<int64_t>(stored->events.size()) >= kJobEventsKept;
  return first == 1 || pruned ? absl::OkStatus() : EventMissing(*stored, first - 1);
}

}  // namespace megatrain
