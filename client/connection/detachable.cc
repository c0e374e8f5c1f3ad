#include "client/connection/detachable.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <thread>

namespace megatrain::client {

absl::Status RunDetachable(SignalWatch* signals, const std::function<absl::Status()>& run,
                           const std::function<void()>& stop) {
  const int done = eventfd(0, EFD_CLOEXEC);
  if (done < 0) return absl::InternalError("cannot make an eventfd");
  absl::Status result;
  std::thread worker([&] {
    result = run();
    const uint64_t one = 1;
    // Cannot fail: the counter is far from its end.
    [[maybe_unused]] const ssize_t written = write(done, &one, sizeof(one));
  });
  bool stopped = false;
  while (true) {
    pollfd ready[] = {{done, POLLIN, 0}, {signals->fd(), POLLIN, 0}};
    poll(ready, 2, -1);
    if ((ready[0].revents & POLLIN) != 0) break;
    const std::optional<int> signal = signals->Take();
    if (signal == SIGTSTP) {
      kill(getpid(), SIGSTOP);
    } else if (signal.has_value() && signal != SIGWINCH && !stopped) {
      stopped = true;
      stop();
    }
  }
  worker.join();
  close(done);
  return stopped ? absl::CancelledError("detached; the job goes on") : result;
}

}  // namespace megatrain::client
