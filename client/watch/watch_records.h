// Makes JSON records, for programs, of a job's events.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_RECORDS_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_RECORDS_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "client/watch/watch_event.h"

namespace megatrain::client {

// Returns an object for each fact of the event. Its one key says what it is: "job", "event",
// "step", "log", "fell_back", "missed", or "connection": "lost" | "restored".
std::vector<nlohmann::ordered_json> WatchRecords(const WatchEvent& event);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_RECORDS_H_
