// Invocation is one run of the program: the options that all commands share, the choice of the
// server, and the output.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_CLIENT_CONTEXT_INVOCATION_H_
#define MEGATRAIN_CLIENT_CONTEXT_INVOCATION_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/connection.h"
#include "client/connection/server_address.h"
#include "client/context/context_store.h"
#include "client/output/text.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// The surroundings of the program. Tests pass their own.
struct Environment {
  FILE* out = stdout;
  FILE* err = stderr;
  // Returns an environment variable; empty if it is not set. Must be given.
  std::function<std::string(const char* name)> variable;
  bool is_terminal = false;          // `out` is a terminal on which a page can be redrawn
  std::function<int()> columns;      // the terminal's width now; must be given if is_terminal
  std::function<int()> rows;         // the terminal's height now; must be given if is_terminal
  Charset charset = Charset::kUtf8;  // the characters that the terminal shows
  absl::TimeZone zone = absl::LocalTimeZone();
  // Asks the user a question and returns the line that is answered, "" at the end of the input. The
  // function is empty if no user can be asked.
  std::function<std::string(const std::string& question)> ask;
};

// Returns this process's surroundings: its variables, standard output and error, locale and time
// zone. `is_terminal` is also false if TERM is empty or "dumb". Sets the process's LC_CTYPE from
// its environment. Call it before other threads start.
Environment ProcessEnvironment();

enum class OutputFormat { kTable, kJson, kYaml };

class Invocation {
 public:
  explicit Invocation(Environment environment) : environment_(std::move(environment)) {}

  // Set by the command line.
  std::string server;            // --server; empty: not given
  std::string output = "table";  // --output
  bool quiet = false;            // print names only

  const Environment& environment() const { return environment_; }
  // Returns kJson if `output` is "json", kYaml if it is "yaml", and otherwise kTable.
  OutputFormat format() const;
  // Returns the view of jobs to request: FULL for JSON and YAML; BASIC, without their files, for
  // tables.
  v1::JobView view() const;
  // Returns the terminal's width, or 0 (unlimited) if environment().is_terminal is false.
  int table_width() const { return environment_.is_terminal ? environment_.columns() : 0; }

  // Returns the address of --server, or else of MEGATRAIN_SERVER, of the current context, or
  // kDefaultServer. Returns the errors of ParseServerAddress and ReadContexts.
  absl::StatusOr<ServerAddress> Server() const;
  // Returns a connection to Server(), which connects at its first call. It has the credentials of
  // the context in use. On TCP, MEGATRAIN_CA (a path) and MEGATRAIN_TOKEN (the token itself)
  // replace the context's. Returns the errors of Server and ReadCredentials, and InvalidArgument if
  // MEGATRAIN_TOKEN holds no token.
  absl::StatusOr<std::unique_ptr<Connection>> Connect() const;
  // Returns the path of the contexts' file (context_store.h). Returns InvalidArgument if the
  // variables XDG_CONFIG_HOME and HOME do not tell it.
  absl::StatusOr<std::string> ContextsPath() const;

  // Below, standard output and error are environment().out and environment().err.

  // Writes to standard output, and flushes it.
  void Print(const std::string& text) const;
  // Writes `line` and a line end to standard error, with "megatrain: " before it. REQUIRES: `line`
  // is printable (text.h), but for line ends within it, and has no line end at its end.
  void Note(const std::string& line) const;
  // Prints an object as JSON or YAML. REQUIRES: format() is not kTable.
  void PrintObject(const nlohmann::ordered_json& object) const;
  // Prints one object of a stream: a line of JSON, or an entry of a YAML list. REQUIRES: format()
  // is not kTable.
  void PrintRecord(const nlohmann::ordered_json& object) const;

  // Writes an error to standard error, each of its lines made printable, with the advice of
  // AdviceFor. Writes nothing for OK.
  void Report(const absl::Status& status) const;

 private:
  // Returns the server, as Server finds it, with the files that prove this user to it.
  absl::StatusOr<Context> Target() const;

  const Environment environment_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_INVOCATION_H_
