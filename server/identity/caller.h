// Caller is the account that calls the daemon.
#ifndef MEGATRAIN_SERVER_IDENTITY_CALLER_H_
#define MEGATRAIN_SERVER_IDENTITY_CALLER_H_

#include <cstdint>
#include <string>

namespace megatrain {

struct Caller {
  int64_t uid = -1;
  std::string user;            // the account's name; the daemon's own user may go by its number
  bool administrator = false;  // sees and controls every user's jobs
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_CALLER_H_
