#include "server/metrics/metrics_address.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

bool IsHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  int port = -1;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool good_host = !host.empty() && host.find_first_of(", \t/") == std::string::npos &&
                         (bracketed || host.find_first_of("[]:") == std::string::npos);
  return colon != std::string::npos && good_host &&
         address.find_first_not_of("0123456789", colon + 1) == std::string::npos &&
         absl::SimpleAtoi(address.substr(colon + 1), &port) && port <= 65535;
}

std::string CheckMetricsAddress(const std::string& address) {
  // The server's own syntax has lists, and letters after the port.
  return IsHostPort(address)
             ? ""
             : absl::StrCat("expects HOST:PORT, as in 127.0.0.1:9464, got ", address);
}

}  // namespace megatrain
