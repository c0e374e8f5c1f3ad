// Turns a job's events into JSON records for programs.
#ifndef MEGATRAIN_CLIENT_WATCH_WATCH_JSON_H_
#define MEGATRAIN_CLIENT_WATCH_WATCH_JSON_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "client/watch/watch_event.h"

namespace megatrain::client {

// Returns one object for each fact of the event. Its single key names the fact: "job", "event",
// "step", "log", "fell_back" or "missed", as in {"missed": {...}}, and the value is the message as
// proto_json.h writes it; or it is {"connection": "lost"} or {"connection": "restored"}. The
// connection is told of only for the job's stream. "missed" does not say of which stream records
// are missing. Returns no objects for other events. So nothing tells of StreamRestarted, after
// which records come again.
std::vector<nlohmann::ordered_json> WatchRecords(const WatchEvent& event);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_WATCH_JSON_H_
