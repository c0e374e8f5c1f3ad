#include "server/store/job_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "server/store/job_rows.h"
#include "server/store/job_store_schema.h"

namespace megatrain {
namespace {

constexpr char kLockFileName[] = "megatraind.lock";

// Owner only: job files and paths of all users are in it.
absl::Status MakePrivateDirectory(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  if (!std::filesystem::create_directories(directory, error) && error) {
    return FileError("make the state directory", directory, error.value());
  }
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  if (error) return FileError("set the mode of", directory, error.value());
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> TakeLock(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kLockFileName);
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.is_open()) return FileError("open", path, errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) return FileError("lock", path, errno);
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

absl::Status EventMissing(const StoredJob& stored, int64_t sequence) {
  return absl::DataLossError(
      absl::StrCat("job ", stored.job.id, ": event ", sequence, " is missing"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& directory) {
  MT_RETURN_IF_ERROR(MakePrivateDirectory(directory));
  MT_ASSIGN_OR_RETURN(Descriptor locked, TakeLock(directory));
  std::unique_ptr<JobStore> store(
      new JobStore(absl::StrCat(directory, "/", kJobStoreFileName), std::move(locked)));
  MutexLock lock(&store->mutex_);
  MT_RETURN_IF_ERROR(Advised(store->path_, store->OpenDatabase()));
  return store;
}

absl::Status JobStore::OpenDatabase() {
  // SQLite would make it readable for all; its side files take the mode of this one.
  if (!Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).is_open()) {
    return FileError("open", path_, errno);
  }

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

absl::Status JobStore::Transaction(const std::function<absl::Status()>& body) {
  MutexLock lock(&mutex_);
  return Advised(path_, database_->Transaction(body));
}

absl::Status JobStore::Insert(const Job& job, const JobEvent& event) {
  return Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    MT_ASSIGN_OR_RETURN(SqliteStatement insert,
                        database_->Prepare(absl::StrCat("INSERT INTO jobs (", JobColumns(),
                                                        ") VALUES (", JobParameters(), ")")));
    BindJob(job, &insert);
    MT_RETURN_IF_ERROR(insert.Run());
    int64_t position = 0;
    for (const std::string& text : job.file->overrides) {
      MT_RETURN_IF_ERROR(
          database_->Run("INSERT INTO overrides VALUES (?,?,?)", job.number, position++, text));
    }
    return WriteEvent(job.number, event);
  });
}

absl::Status JobStore::Update(const Job& job, const std::vector<JobEvent>& events) {
  return Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    // The submitted columns never change; all are written, so that none is forgotten.
    MT_ASSIGN_OR_RETURN(SqliteStatement update,
                        database_->Prepare(absl::StrCat("UPDATE jobs SET (", JobColumns(), ") = (",
                                                        JobParameters(), ") WHERE id = ?")));
    BindJob(job, &update);
    update.Bind(job.id);
    MT_RETURN_IF_ERROR(update.Run());
    MT_RETURN_IF_ERROR(CheckChanged(job.id));
    for (const JobEvent& event : events) MT_RETURN_IF_ERROR(WriteEvent(job.number, event));
    if (events.empty() || events.back().sequence <= kJobEventsKept) return absl::OkStatus();
    return database_->Run("DELETE FROM events WHERE job = ? AND sequence <= ?", job.number,
                          events.back().sequence - kJobEventsKept);
  });
}

absl::Status JobStore::MarkDeleted(const std::string& id) {
  return Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    MT_RETURN_IF_ERROR(
        database_->Run("UPDATE jobs SET deleted = 1, request_id = NULL WHERE id = ?", id));
    return CheckChanged(id);
  });
}

absl::Status JobStore::Remove(const std::string& id) {
  return Transaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    for (const char* sql :
         {"DELETE FROM events WHERE job = (SELECT number FROM jobs WHERE id = ?)",
          "DELETE FROM overrides WHERE job = (SELECT number FROM jobs WHERE id = ?)",
          "DELETE FROM jobs WHERE id = ?"}) {
      MT_RETURN_IF_ERROR(database_->Run(sql, id));
    }
    return absl::OkStatus();
  });
}

absl::Status JobStore::CheckChanged(const std::string& id) const {
  if (database_->ChangedRows() > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path_, ": holds no job ", id));
}

absl::Status JobStore::WriteEvent(int64_t number, const JobEvent& event) {
  MT_ASSIGN_OR_RETURN(SqliteStatement write,
                      database_->Prepare("INSERT INTO events VALUES (?,?,?,?,?,?,?)"));
  write.Bind(number);
  BindEvent(event, &write);
  return write.Run();
}

absl::StatusOr<std::vector<StoredJob>> JobStore::ReadAll() {
  MutexLock lock(&mutex_);
  std::vector<StoredJob> jobs;
  MT_RETURN_IF_ERROR(Advised(path_, ReadJobs(&jobs)));
  return jobs;
}

absl::Status JobStore::ReadJobs(std::vector<StoredJob>* jobs) {
  MT_ASSIGN_OR_RETURN(SqliteStatement row,
                      database_->Prepare(absl::StrCat("SELECT id, deleted, ", JobColumns(),
                                                      " FROM jobs ORDER BY number")));
  for (;;) {
    MT_ASSIGN_OR_RETURN(const bool more, row.Step());
    if (!more) break;
    absl::StatusOr<Job> job = ReadJob(row, 2);
    if (!job.ok()) {
      return absl::DataLossError(absl::StrCat("job ", row.Text(0), ": ", job.status().message()));
    }
    jobs->push_back({*std::move(job), {}, row.Int(1) != 0});
  }
  for (StoredJob& stored : *jobs) {
    MT_RETURN_IF_ERROR(ReadOverrides(&stored));
    MT_RETURN_IF_ERROR(ReadEvents(&stored));
  }
  return absl::OkStatus();
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
    MT_ASSIGN_OR_RETURN(JobEvent event, ReadEvent(row));
    if (!stored->events.empty() && event.sequence != stored->events.back().sequence + 1) {
      return EventMissing(*stored, stored->events.back().sequence + 1);
    }
    stored->events.push_back(std::move(event));
  }
  if (stored->events.empty()) return EventMissing(*stored, 1);
  const int64_t first = stored->events.front().sequence;
  const bool pruned = static_cast<int64_t>(stored->events.size()) >= kJobEventsKept;
  return first == 1 || pruned ? absl::OkStatus() : EventMissing(*stored, first - 1);
}

}  // namespace megatrain
