// One call of the program: the options that all commands share, and where it writes.
#ifndef MEGATRAIN_CLIENT_CONTEXT_INVOCATION_H_
#define MEGATRAIN_CLIENT_CONTEXT_INVOCATION_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/connection.h"
#include "client/connection/server_address.h"
#include "client/context/context_store.h"
#include "client/output/text.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// What is around the program. Tests give their own.
struct Environment {
  FILE* out = stdout;
  FILE* err = stderr;
  // Empty if the variable is not set.
  std::function<std::string(const char* name)> variable;
  bool is_terminal = false;          // `out` is one that can be rewritten
  std::function<int()> columns;      // of the terminal
  std::function<int()> rows;         // of the terminal
  Charset charset = Charset::kUtf8;  // of the terminal
  absl::TimeZone zone = absl::LocalTimeZone();
  // Puts a question to a person and returns the answer's line; empty: there is nobody to ask.
  std::function<std::string(const std::string& question)> ask;
};

// Of this process: standard output and error, its locale and time zone. TERM=dumb is no terminal.
Environment ProcessEnvironment();

enum class OutputFormat { kTable, kJson, kYaml };

class Invocation {
 public:
  explicit Invocation(Environment environment) : environment_(std::move(environment)) {}

  // Set by the command line.
  std::string server;  // empty: not given
  std::string output = "table";
  bool quiet = false;  // names only

  const Environment& environment() const { return environment_; }
  OutputFormat format() const;
  // The view of jobs to ask for: whole for JSON and YAML, without their files for tables.
  v1::JobView view() const;
  // The terminal's width, or 0 if lines may have any.
  int table_width() const { return environment_.is_terminal ? environment_.columns() : 0; }

  // --server, then MEGATRAIN_SERVER, then the current context, then the default.
  absl::StatusOr<ServerAddress> Server() const;
  // With what the current context has for its server; MEGATRAIN_CA and MEGATRAIN_TOKEN replace it.
  absl::StatusOr<std::unique_ptr<Connection>> Connect() const;
  // Of contexts; InvalidArgument if no home directory is known.
  absl::StatusOr<std::string> ContextsPath() const;

  // To standard output, at once.
  void Print(const std::string& text) const;
  // To standard error, a line.
  void Note(const std::string& line) const;
  // An object as JSON or YAML. REQUIRES: format() is not kTable.
  void PrintObject(const nlohmann::ordered_json& object) const;
  // One of a stream of objects: a line of JSON, or an entry of a YAML list.
  void PrintRecord(const nlohmann::ordered_json& object) const;

  // Prints the error, if it is one, with what to do about it.
  void Report(const absl::Status& status) const;

 private:
  // The server, as Server finds it, and the files that prove this user to it.
  absl::StatusOr<Context> Target() const;

  const Environment environment_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_INVOCATION_H_
