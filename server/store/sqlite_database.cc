#include "server/store/sqlite_database.h"

#include <sqlite3.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Somebody looking at the file with another program may hold it for a moment.
constexpr int kBusyMilliseconds = 5000;

// SQLite keeps the system's error of a statement, but not that of a commit: the log has it then.
int LastSystemError(sqlite3* handle) {
  int error = sqlite3_system_errno(handle);
  sqlite3_file* log = nullptr;
  if (error == 0 && handle != nullptr &&
      sqlite3_file_control(handle, nullptr, SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK &&
      log != nullptr && log->pMethods != nullptr) {
    log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
  }
  return error;
}

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      bound_(other.bound_),
      bind_result_(other.bind_result_) {}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

void SqliteStatement::Bind(int64_t value) {
  const int result = sqlite3_bind_int64(statement_, ++bound_, value);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
}

void SqliteStatement::Bind(std::string_view text) {
  // An empty view may have no address, which SQLite would take for NULL.
  const char* const data = text.data() == nullptr ? "" : text.data();
  const int result =
      sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
}

void SqliteStatement::Bind(std::nullopt_t) {
  const int result = sqlite3_bind_null(statement_, ++bound_);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  if (bind_result_ != SQLITE_OK) return database_->Error(bind_result_);
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  absl::Status status = database_->Error(result);
  sqlite3_reset(statement_);
  return status;
}

absl::Status SqliteStatement::Run() {
  for (;;) {
    MT_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return absl::OkStatus();
  }
}

int64_t SqliteStatement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

std::string SqliteStatement::Text(int column) const {
  const unsigned char* const text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return "";
  return std::string(reinterpret_cast<const char*>(text),
                     static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

bool SqliteStatement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(
      path.c_str(), &handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      nullptr);
  if (handle == nullptr) return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory"));
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(path, handle));
  if (result != SQLITE_OK) return database->Error(result);
  sqlite3_busy_timeout(handle, kBusyMilliseconds);
  return database;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(handle_); }

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  const int result = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : Error(result);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const std::string& sql) const {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (result != SQLITE_OK) return Error(result);
  return SqliteStatement(this, statement);
}

absl::StatusOr<std::string> SqliteDatabase::Value(const std::string& sql) const {
  MT_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  MT_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::InternalError(absl::StrCat(path_, ": no row for ", sql));
  return statement.Text(0);
}

absl::StatusOr<int64_t> SqliteDatabase::IntValue(const std::string& sql) const {
  MT_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  MT_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::InternalError(absl::StrCat(path_, ": no row for ", sql));
  return statement.Int(0);
}

absl::Status SqliteDatabase::Transaction(const std::function<absl::Status()>& body) {
  MT_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Status status = body();
  if (status.ok()) status = Execute("COMMIT");
  // Some errors, a full disk among them, have rolled back already.
  if (!status.ok() && sqlite3_get_autocommit(handle_) == 0) {
    const absl::Status undone = Execute("ROLLBACK");
    if (!undone.ok()) {
      status = absl::Status(status.code(),
                            absl::StrCat(status.message(), "; undoing it: ", undone.message()));
    }
  }
  return status;
}

int64_t SqliteDatabase::ChangedRows() const { return sqlite3_changes64(handle_); }

absl::Status SqliteDatabase::Error(int code) const {
  const std::string text = absl::StrCat(path_, ": ", sqlite3_errmsg(handle_));
  const int system_error = LastSystemError(handle_);
  const int primary = code & 0xff;
  if (primary == SQLITE_FULL ||
      (primary == SQLITE_IOERR && (system_error == ENOSPC || system_error == EDQUOT))) {
    return absl::ResourceExhaustedError(absl::StrCat(path_, ": the disk is full"));
  }
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) return absl::DataLossError(text);
  if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY ||
      code == SQLITE_CONSTRAINT_ROWID) {
    return absl::AlreadyExistsError(text);
  }
  return absl::InternalError(text);
}

}  // namespace megatrain
