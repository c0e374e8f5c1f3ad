#include "client/context/invocation.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "client/connection/rpc_error.h"
#include "client/output/proto_json.h"

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
  // Messages may have lines of their own, as a plan has.
  Note(status.message().empty() ? absl::StatusCodeToString(status.code())
                                : PrintableLines(status.message()));
  if (const std::string advice = AdviceFor(status); !advice.empty()) {
    std::fprintf(environment_.err, "  %s\n", advice.c_str());
  }
}

}  // namespace megatrain::client
