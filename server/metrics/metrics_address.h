// The address that the metrics page is served on.
#ifndef MEGATRAIN_SERVER_METRICS_METRICS_ADDRESS_H_
#define MEGATRAIN_SERVER_METRICS_METRICS_ADDRESS_H_

#include <string>

namespace megatrain {

inline constexpr char kDefaultMetricsAddress[] = "127.0.0.1:9464";

// "HOST:PORT", as in 127.0.0.1:9464 or [::1]:9464; not a list, nothing behind the port.
bool IsHostPort(const std::string& address);

// What is wrong with an address "HOST:PORT", as in 127.0.0.1:9464 or [::1]:9464; "" = nothing.
std::string CheckMetricsAddress(const std::string& address);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_METRICS_ADDRESS_H_
