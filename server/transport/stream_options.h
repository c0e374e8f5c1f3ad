// How server streams behave.
#ifndef MEGATRAIN_SERVER_TRANSPORT_STREAM_OPTIONS_H_
#define MEGATRAIN_SERVER_TRANSPORT_STREAM_OPTIONS_H_

#include <chrono>

namespace megatrain {

struct StreamOptions {
  std::chrono::milliseconds heartbeat{10000};
  // A reader that has had all there was gets its next message no sooner than this after the last:
  // steps that are shorter come several to a message, or the newest alone. A job's events are not
  // held up.
  std::chrono::milliseconds pace{50};
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_STREAM_OPTIONS_H_
