// Who calls the daemon.
#ifndef MEGATRAIN_SERVER_IDENTITY_CALLER_H_
#define MEGATRAIN_SERVER_IDENTITY_CALLER_H_

#include <cstdint>
#include <string>

namespace megatrain {

// Administrators see and control every user's jobs.
struct Caller {
  int64_t uid = -1;
  std::string user;
  bool administrator = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_CALLER_H_
