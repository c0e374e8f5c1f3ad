// Wraps SQLite, with Status in place of error codes, as far as the job store needs it.
//
// Errors begin with the file's name: ResourceExhausted (no room on the disk, or no memory to open
// it), DataLoss (damaged, or no database), AlreadyExists (a value that must be unique is taken),
// else Internal.
//
// Thread safety: a database and its statements are for one thread at a time.
#ifndef MEGATRAIN_SERVER_STORE_SQLITE_DATABASE_H_
#define MEGATRAIN_SERVER_STORE_SQLITE_DATABASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace megatrain {

// A statement with parameters. Its values are bound in order, and then it is run once.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Bind a value, which is copied, to the next question mark; nullopt is NULL. An error is returned
  // by Step.
  void Bind(int64_t value);
  void Bind(std::string_view text);
  void Bind(std::nullopt_t);

  // Returns true if a row is there, and false when all is done.
  absl::StatusOr<bool> Step();
  // Steps to the end; rows are dropped.
  absl::Status Run();

  // Return a column of the row, counted from 0; 0 or "" if it is NULL. REQUIRES: Step has returned
  // true.
  int64_t Int(int column) const;
  std::string Text(int column) const;
  bool IsNull(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(const class SqliteDatabase* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}

  const SqliteDatabase* database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  int bind_result_ = 0;  // the first that was not SQLITE_OK
};

class SqliteDatabase {
 public:
  // Opens the file, which is made if it is missing. Calls that follow wait up to 5 seconds for
  // another program that holds a lock on the file, and then return Internal.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Runs any number of statements without parameters; rows are dropped.
  absl::Status Execute(const std::string& sql);
  // Returns a statement, which must not outlive the database.
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql) const;
  // Runs a statement with these parameters; rows are dropped.
  template <class... Parameters>
  absl::Status Run(const std::string& sql, const Parameters&... parameters) {
    absl::StatusOr<SqliteStatement> statement = Prepare(sql);
    if (!statement.ok()) return statement.status();
    (statement->Bind(parameters), ...);
    return statement->Run();
  }
  // Return the first column of the first row, as text or as a number; Internal if there is no row.
  absl::StatusOr<std::string> Value(const std::string& sql) const;
  absl::StatusOr<int64_t> IntValue(const std::string& sql) const;

  // Carries out all that `body` does, or nothing if it or the commit fails. Must not be nested.
  absl::Status Transaction(const std::function<absl::Status()>& body);

  // Returns how many rows the last INSERT, UPDATE or DELETE touched.
  int64_t ChangedRows() const;

  // Returns the error of the last call of SQLite, whose result was `code`. It begins with the path.
  absl::Status Error(int code) const;

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  const std::string path_;
  sqlite3* const handle_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_SQLITE_DATABASE_H_
