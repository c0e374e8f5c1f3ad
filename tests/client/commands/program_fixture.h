// The client's program against the daemon's real services, in one process.
#ifndef MEGATRAIN_TESTS_CLIENT_COMMANDS_PROGRAM_FIXTURE_H_
#define MEGATRAIN_TESTS_CLIENT_COMMANDS_PROGRAM_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/connection/exit_code.h"
#include "client/program.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain::client {

struct Result {
  int code = -1;
  std::string out, err;
};

// Standard output and error of a call, readable while it runs.
class Captured {
 public:
  Captured() : file_(std::tmpfile()) {}
  ~Captured() { std::fclose(file_); }
  FILE* file() { return file_; }
  std::string Text() const {
    std::string text(1 << 20, '\0');
    const ssize_t bytes = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
    return text;
  }

 private:
  FILE* const file_;
};

class ProgramTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    authenticator_.nameless = "anna";
    variables_["MEGATRAIN_SERVER"] = options_.listen[0];
    variables_["HOME"] = directory_.path() + "/home";
    std::ofstream(JobFile()) << "name: demo\n"
                                "model: {path: model}\n"
                                "data: {train: [{path: train.jsonl, format: alpaca}]}\n"
                                "training: {steps: 100}\n";
  }

  std::string JobFile() const { return directory_.path() + "/job.yaml"; }

  int RunInto(const std::vector<std::string>& arguments, Captured* out, Captured* err) {
    Environment environment;
    environment.out = out->file();
    environment.err = err->file();
    environment.variable = [this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::string() : found->second;
    };
    environment.is_terminal = is_terminal_;
    environment.columns = [] { return 80; };
    environment.rows = [] { return 24; };
    environment.zone = absl::UTCTimeZone();
    environment.ask = ask_;
    return RunProgram(arguments, environment);
  }
  Result Run(const std::vector<std::string>& arguments) {
    Captured out, err;
    Result result;
    result.code = RunInto(arguments, &out, &err);
    std::fflush(err.file());
    result.out = out.Text();
    result.err = err.Text();
    return result;
  }
  nlohmann::json Json(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const Result result = Run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }
  void MoveToRunning(const std::string& id) {
    Move(id, JobState::kPreparing);
    Move(id, JobState::kRunning);
  }

  std::map<std::string, std::string> variables_;
  bool is_terminal_ = false;
  std::function<std::string(const std::string& question)> ask_;
};

inline std::string LastWord(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return words.empty() ? "" : words.back();
}

inline std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

}  // namespace megatrain::client

#endif  // MEGATRAIN_TESTS_CLIENT_COMMANDS_PROGRAM_FIXTURE_H_
