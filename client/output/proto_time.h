// Converts times of messages.
#ifndef MEGATRAIN_CLIENT_OUTPUT_PROTO_TIME_H_
#define MEGATRAIN_CLIENT_OUTPUT_PROTO_TIME_H_

#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace megatrain::client {

// Returns the time of a message's timestamp; the begin of 1970 (UTC) if that is unset.
inline absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_PROTO_TIME_H_
