// A job being watched as records for programs.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_RECORDS_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_RECORDS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "client/watch/watch_event.h"

namespace megatrain::client {

// Objects of one key, which says what it is: "job", "event", "step", "log", "fell_back", "missed",
// or "connection": "lost" | "restored".
std::vector<nlohmann::ordered_json> WatchRecords(const WatchEvent& event);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_RECORDS_H_
