// Makes and reads page tokens, each of which says where the next page of one list begins.
#ifndef MEGATRAIN_SERVER_API_PAGE_TOKEN_H_
#define MEGATRAIN_SERVER_API_PAGE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

// Returns an opaque text that is safe in URLs. `after` is the key of the last entry of the page
// before. `question` holds everything that decides the list, such as its filter and order.
// REQUIRES: after > 0.
std::string MakePageToken(int64_t after, const std::string& question);

// Returns the `after` of a token, and 0 for an empty one. Returns InvalidArgument
// (INVALID_PAGE_TOKEN) for a text that is not a token for this `question`. A caller can forge a
// token, so it grants nothing: check for each entry of the page whether the caller may see it.
absl::StatusOr<int64_t> ReadPageToken(const std::string& token, const std::string& question);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_PAGE_TOKEN_H_
