// Addresses that the metrics page can be served on.
#ifndef MEGATRAIN_SERVER_METRICS_METRICS_ADDRESS_H_
#define MEGATRAIN_SERVER_METRICS_METRICS_ADDRESS_H_

#include <string>

namespace megatrain {

inline constexpr char kDefaultMetricsAddress[] = "127.0.0.1:9464";

// Returns true if `address` is one "HOST:PORT", as 127.0.0.1:9464 or [::1]:9464.
bool IsHostPort(const std::string& address);

// Returns what is wrong with `address`, for people; "" if it is a HOST:PORT that can be served on.
std::string CheckMetricsAddress(const std::string& address);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_METRICS_ADDRESS_H_
