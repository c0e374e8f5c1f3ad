#include "server/launch/local_processes.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// Binds or connects a new socket to the name of a process. Returns the socket, or -1 with errno.
int Reach(const std::string& job, int number,
          int (*reach)(int socket, const sockaddr* address, socklen_t bytes)) {
  // Behind a zero: a name of the kernel's, without a file, gone with its socket.
  const std::string name =
      absl::StrCat(std::string(1, '\0'), "megatrain/", getuid(), "/", job, "/", number);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.size() > sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  name.copy(address.sun_path, name.size());
  const int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made < 0) return -1;
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (reach(made, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return made;
  const int error = errno;
  close(made);
  errno = error;
  return -1;
}

}  // namespace

LocalProcesses::LocalProcesses(const std::string& job, int number)
    : job_(job), socket_(job.empty() ? -1 : Reach(job, number, bind)) {}

LocalProcesses::~LocalProcesses() {
  if (socket_ >= 0) close(socket_);
}

std::vector<int> LocalProcesses::Missing(int count) const {
  std::vector<int> missing;
  for (int number = 0; number < count && socket_ >= 0; ++number) {
    const int other = Reach(job_, number, connect);
    if (other >= 0) {
      close(other);
    } else if (errno == ECONNREFUSED) {  // nobody has the name
      missing.push_back(number);
    }
  }
  return missing;
}

}  // namespace megatrain
