#include "server/rpc/authenticator.h"

#include <pwd.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "megatrain/v1/error_reason.pb.h"
#include "server/jobs/error_reason.h"

namespace megatrain {
namespace {

// The account's name; its number where it has none, as in a container.
std::string UserName(uid_t uid) {
  std::vector<char> buffer(16384);
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return absl::StrCat(uid);
}

}  // namespace

PrivateSocketAuthenticator::PrivateSocketAuthenticator() {
  owner_.uid = geteuid();
  owner_.user = UserName(geteuid());
  owner_.administrator = true;
}

absl::StatusOr<Caller> PrivateSocketAuthenticator::Authenticate(
    const grpc::ServerContextBase& context) const {
  if (absl::StartsWith(context.peer(), "unix:")) return owner_;
  return WithReason(
      absl::UnauthenticatedError("only callers on the daemon's Unix socket are known"),
      v1::ErrorReason_Name(v1::UNAUTHENTICATED_CALLER));
}

}  // namespace megatrain
