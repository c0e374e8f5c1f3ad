// Wraps SQLite, with Status in place of error codes, as far as the job store needs it.
//
// Messages of errors begin with the file's path. The codes are:
// - ResourceExhausted: the disk is full, or there is no memory to open the file.
// - DataLoss: the file is damaged, or is no database.
// - AlreadyExists: a value that must be unique is taken.
// - Internal: any other failure.
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

// A statement with parameters. Bind its values in order, then run it once. It must not outlive its
// database.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Bind a value, which is copied, to the next question mark; nullopt is NULL. Step returns the
  // first error of binding.
  void Bind(int64_t value);
  void Bind(std::string_view text);
  void Bind(std::nullopt_t);

  // Goes to the next row. Returns true if there is one, and false when the statement is done. Must
  // not be called after false or an error, because SQLite would run the statement again.
  absl::StatusOr<bool> Step();
  // Steps to the end, and drops the rows.
  absl::Status Run();

  // Return the value of a column of the row, counted from 0. NULL is 0 or "". REQUIRES, as IsNull
  // does: the last Step has returned true.
  int64_t Int(int column) const;
  std::string Text(int column) const;
  // Returns true if the column is NULL.
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
  // Opens the file, which is made if it is missing. Later calls wait up to 5 seconds while another
  // program holds a lock on the file, and then return Internal.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Runs any number of statements without parameters, and drops their rows.
  absl::Status Execute(const std::string& sql);
  // Returns a statement for the first one in `sql`.
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql) const;
  // Runs a statement with these parameters, and drops its rows.
  template <class... Parameters>
  absl::Status Run(const std::string& sql, const Parameters&... parameters) {
    absl::StatusOr<SqliteStatement> statement = Prepare(sql);
    if (!statement.ok()) return statement.status();
    (statement->Bind(parameters), ...);
    return statement->Run();
  }
  // Return the first column of the first row, as text or as a number. Return Internal if there is
  // no row.
  absl::StatusOr<std::string> Value(const std::string& sql) const;
  absl::StatusOr<int64_t> IntValue(const std::string& sql) const;

  // Runs `body` as one transaction, which is undone if `body` or the commit fails. Returns the
  // error of beginning, of `body` or of the commit; its message also tells if undoing failed. Must
  // not be nested.
  absl::Status Transaction(const std::function<absl::Status()>& body);

  // Returns how many rows the last INSERT, UPDATE or DELETE changed.
  int64_t ChangedRows() const;

  // Returns the error of the last call of SQLite, whose result was `code`. REQUIRES: `code` is an
  // error.
  absl::Status Error(int code) const;

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  const std::string path_;
  sqlite3* const handle_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_SQLITE_DATABASE_H_
