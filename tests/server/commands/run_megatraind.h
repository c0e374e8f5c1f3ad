// Runs the program as a shell does.
#ifndef MEGATRAIN_TESTS_SERVER_COMMANDS_RUN_MEGATRAIND_H_
#define MEGATRAIN_TESTS_SERVER_COMMANDS_RUN_MEGATRAIND_H_

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace megatrain {

struct Result {
  int exit_code = -1;
  std::string output;  // standard output and error
};

// Runs `megatraind ARGUMENTS`, which a shell splits into words. The test needs //server:megatraind
// among its data.
inline Result Megatraind(const std::string& arguments) {
  const std::string command = "server/megatraind " + arguments + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  Result result;
  std::array<char, 4096> buffer;
  size_t n = 0;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) {
    result.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_COMMANDS_RUN_MEGATRAIND_H_
