// Where the messages of a stream come from: a place in a series, not a buffer.
#ifndef MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_
#define MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"

namespace megatrain {

enum class StreamNext {
  kMessage,  // the message was filled in
  kNothing,  // there is nothing new
  kEnd,      // there will be nothing new
};

// Thread safety: one thread at a time. What a source is woken by is given to it when it is made; it
// may wake from any thread, and not any more when it is destroyed.
template <class Message>
class StreamSource {
 public:
  virtual ~StreamSource() = default;

  // What is next in the stream. Does not wait. `message` is empty.
  virtual absl::StatusOr<StreamNext> Next(Message* message) = 0;

  // Whether what is next is not to wait for the stream's pace.
  virtual bool Urgent() const { return false; }

  // The number of the record to come, for heartbeats; 0 where records are not numbered.
  virtual int64_t next_sequence() const = 0;

  // After this long without news the source is asked again even if it did not wake.
  virtual std::chrono::milliseconds poll_interval() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_
