// LocalProcesses tells which processes of a job have begun on this machine, before they can meet by
// MPI: each holds a socket with its number, in the kernel's own names, as long as it lives.
#ifndef MEGATRAIN_SERVER_COMMANDS_LOCAL_PROCESSES_H_
#define MEGATRAIN_SERVER_COMMANDS_LOCAL_PROCESSES_H_

#include <string>
#include <vector>

namespace megatrain {

class LocalProcesses {
 public:
  // Shows that process `number` of those that this machine has of `job` has begun. `job` is the
  // same for all of them, and not for another job; where it is empty, nothing is shown or known.
  LocalProcesses(const std::string& job, int number);
  ~LocalProcesses();
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  // Returns which of the processes 0 to `count` - 1 do not show. Where it cannot be known, none.
  std::vector<int> Missing(int count) const;

 private:
  const std::string job_;
  int socket_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_LOCAL_PROCESSES_H_
