#include "tests/support/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "tests/support/read_file.h"

namespace megatrain {

namespace {

template <class Resource>
void Limit(Resource resource, int64_t value) {
  rlimit limit;
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(value);
  setrlimit(resource, &limit);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, std::string output_file,
                           const ChildLimits& limits)
    : output_file_(std::move(output_file)) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) {
    ended_ = pid_ < 0;
    exit_code_ = ended_ ? 127 : 0;
    return;
  }
  // The child: system calls only. It does not outlive who started it, whatever ends that.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(output_file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(out, 1);
  dup2(out, 2);
  if (limits.file_bytes > 0) {
    signal(SIGXFSZ, SIG_IGN);
    Limit(RLIMIT_FSIZE, limits.file_bytes);
  }
  if (limits.open_files > 0) Limit(RLIMIT_NOFILE, limits.open_files);
  execv(argv[0], argv.data());
  _exit(127);
}

ChildProcess::~ChildProcess() {
  if (ended_) return;
  Signal(SIGKILL);
  Wait();
}

void ChildProcess::Signal(int number) {
  if (!ended_) kill(pid_, number);
}

void ChildProcess::Reap(int status) {
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool ChildProcess::Running() {
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) Reap(status);
  return !ended_;
}

int ChildProcess::Wait() {
  int status = 0;
  while (!ended_) {
    if (waitpid(pid_, &status, 0) == pid_) {
      Reap(status);
    } else if (errno != EINTR) {
      ended_ = true;
      exit_code_ = 127;
    }
  }
  return exit_code_;
}

std::string ChildProcess::Output() const { return ReadFileOrEmpty(output_file_); }

}  // namespace megatrain
