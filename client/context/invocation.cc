#include "client/context/invocation.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/connection/rpc_error.h"
#include "client/output/proto_json.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

winsize WindowSize(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    size.ws_col = 80;
    size.ws_row = 24;
  }
  return size;
}

}  // namespace

Environment ProcessEnvironment() {
  Environment environment;
  environment.variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const int fd = fileno(environment.out);
  const std::string term = environment.variable("TERM");
  environment.is_terminal = isatty(fd) == 1 && !term.empty() && term != "dumb";
  environment.columns = [fd] { return int{WindowSize(fd).ws_col}; };
  environment.rows = [fd] { return int{WindowSize(fd).ws_row}; };
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
    environment.ask = [](const std::string& question) {
      std::fputs(question.c_str(), stderr);
      std::fflush(stderr);
      std::string answer;
      std::getline(std::cin, answer);
      return answer;
    };
  }
  std::setlocale(LC_CTYPE, "");
  environment.charset =
      std::string_view(nl_langinfo(CODESET)) == "UTF-8" ? Charset::kUtf8 : Charset::kAscii;
  return environment;
}

OutputFormat Invocation::format() const {
  return output == "json"   ? OutputFormat::kJson
         : output == "yaml" ? OutputFormat::kYaml
                            : OutputFormat::kTable;
}

v1::JobView Invocation::view() const {
  return format() == OutputFormat::kTable ? v1::JOB_VIEW_BASIC : v1::JOB_VIEW_FULL;
}

absl::StatusOr<std::string> Invocation::ContextsPath() const {
  std::string base = environment_.variable("XDG_CONFIG_HOME");
  // The XDG specification has relative paths ignored.
  if (base.empty() || base.front() != '/') {
    const std::string home = environment_.variable("HOME");
    if (home.empty()) {
      return absl::InvalidArgumentError(
          "contexts are kept in the home directory, and HOME is not set");
    }
    base = absl::StrCat(home, "/.config");
  }
  return absl::StrCat(base, "/megatrain/contexts.json");
}

absl::StatusOr<Context> Invocation::Target() const {
  if (!server.empty()) return Context{server, {}};
  if (const std::string named = environment_.variable("MEGATRAIN_SERVER"); !named.empty()) {
    const absl::StatusOr<ServerAddress> address = ParseServerAddress(named);
    if (address.ok()) return Context{named, {}};
    return absl::InvalidArgumentError(
        absl::StrCat("MEGATRAIN_SERVER: ", address.status().message()));
  }
  if (const absl::StatusOr<std::string> path = ContextsPath(); path.ok()) {
    MT_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*path));
    if (!contexts.current.empty()) return contexts.contexts.at(contexts.current);
  }
  return Context{kDefaultServer, {}};
}

absl::StatusOr<ServerAddress> Invocation::Server() const {
  MT_ASSIGN_OR_RETURN(const Context target, Target());
  return ParseServerAddress(target.server);
}

absl::StatusOr<std::unique_ptr<Connection>> Invocation::Connect() const {
  MT_ASSIGN_OR_RETURN(Context target, Target());
  MT_ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(target.server));
  if (address.local()) return std::make_unique<Connection>(address);
  if (const std::string ca = environment_.variable("MEGATRAIN_CA"); !ca.empty()) {
    target.files.ca = ca;
  }
  const std::string token = environment_.variable("MEGATRAIN_TOKEN");
  if (!token.empty()) target.files.token = "";
  MT_ASSIGN_OR_RETURN(Credentials credentials, ReadCredentials(target.files));
  if (!token.empty()) {
    if (!IsToken(token)) return absl::InvalidArgumentError("MEGATRAIN_TOKEN: is not a token");
    credentials.token = token;
  }
  return std::make_unique<Connection>(address, credentials);
}

void Invocation::Print(const std::string& text) const {
  std::fputs(text.c_str(), environment_.out);
  std::fflush(environment_.out);
}

void Invocation::Note(const std::string& line) const {
  std::fflush(environment_.out);
  std::fprintf(environment_.err, "megatrain: %s\n", line.c_str());
}

void Invocation::PrintObject(const nlohmann::ordered_json& object) const {
  Print(format() == OutputFormat::kJson ? JsonText(object) + "\n" : YamlText(object));
}

void Invocation::PrintRecord(const nlohmann::ordered_json& object) const {
  Print(format() == OutputFormat::kJson ? JsonLine(object) + "\n"
                                        : YamlText(nlohmann::ordered_json::array({object})));
}

void Invocation::Report(const absl::Status& status) const {
  if (status.ok()) return;
  std::string message = status.message().empty() ? absl::StatusCodeToString(status.code())
                                                 : std::string(status.message());
  // Messages may have lines of their own, as a plan has.
  std::string text;
  for (size_t begin = 0; begin <= message.size();) {
    const size_t end = std::min(message.find('\n', begin), message.size());
    absl::StrAppend(&text, begin > 0 ? "\n" : "", Printable(message.substr(begin, end - begin)));
    begin = end + 1;
  }
  Note(text);
  if (const std::string advice = AdviceFor(status); !advice.empty()) {
    std::fprintf(environment_.err, "  %s\n", advice.c_str());
  }
}

}  // namespace megatrain::client
