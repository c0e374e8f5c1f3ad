// A program started by a test, its output kept.
#ifndef MEGATRAIN_TESTS_SUPPORT_CHILD_PROCESS_H_
#define MEGATRAIN_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

// What a process may use; 0: as much as its parent.
struct ChildLimits {
  // What a file may grow to (RLIMIT_FSIZE); a longer write fails with EFBIG.
  int64_t file_bytes = 0;
  int64_t open_files = 0;  // RLIMIT_NOFILE, which it cannot raise again
};

class ChildProcess {
 public:
  // Starts the program at the path arguments[0], with standard output and error in `output_file`.
  // It is also killed if the thread that starts it ends.
  ChildProcess(const std::vector<std::string>& arguments, std::string output_file,
               const ChildLimits& limits = {});
  // Kills it if it still runs, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int number);
  bool Running();
  // Waits for its end. Returns the exit code, -number if a signal ended it, or 127 if it could not
  // be started.
  int Wait();
  std::string Output() const;
  pid_t pid() const { return pid_; }

 private:
  void Reap(int status);

  const std::string output_file_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_CHILD_PROCESS_H_
