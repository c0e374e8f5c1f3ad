// LocalProcesses finds out which processes of a job have started on this machine, before MPI
// connects them. Each process binds an abstract Unix socket, whose name holds the user's id, the
// job and the process's number. Only processes of the same user and network namespace see each
// other.
//
// Thread safety: any thread may call Missing.
#ifndef MEGATRAIN_SERVER_LAUNCH_LOCAL_PROCESSES_H_
#define MEGATRAIN_SERVER_LAUNCH_LOCAL_PROCESSES_H_

#include <string>
#include <vector>

namespace megatrain {

class LocalProcesses {
 public:
  // Announces this process until this object is destroyed. `number` is its number, from 0, among
  // the job's processes on this machine. `job` must be unique to the job. Announces nothing if
  // `job` is empty or too long for a socket's name, if the name is taken, or if no socket can be
  // made.
  LocalProcesses(const std::string& job, int number);
  ~LocalProcesses();
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  // Returns the numbers below `count` whose processes have not announced themselves or have ended.
  // Returns none if this process could not announce itself. A process counts as announced if the
  // system cannot tell.
  std::vector<int> Missing(int count) const;

 private:
  const std::string job_;
  int socket_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_LAUNCH_LOCAL_PROCESSES_H_
