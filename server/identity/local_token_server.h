// The socket beside a shared Unix socket, PATH.auth, that tells callers apart: whoever connects is
// sent a token for the uid that the kernel says it has (SO_PEERCRED), as one line of JSON, and the
// connection is closed:
//   {"token": "mtl_...", "lifetime_seconds": 300}
//   {"error": "why there is none"}
// Nothing is read from a peer and what is sent fits the empty socket's buffer, so that no peer,
// slow or hostile, can hold the thread up; one connection is open at a time.
//
// Thread safety: Start and the destructor in one thread; it serves in its own.
#ifndef MEGATRAIN_SERVER_IDENTITY_LOCAL_TOKEN_SERVER_H_
#define MEGATRAIN_SERVER_IDENTITY_LOCAL_TOKEN_SERVER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/identity/account.h"
#include "server/identity/local_tokens.h"

namespace megatrain {

class LocalTokenServer {
 public:
  // Of the companion of the Unix socket PATH.
  static constexpr char kSuffix[] = ".auth";

  // Listens on `path`, which must not exist, with mode 0600 at first. `accounts` and `tokens` must
  // outlive the server.
  static absl::StatusOr<std::unique_ptr<LocalTokenServer>> Start(const std::string& path,
                                                                 const AccountCache* accounts,
                                                                 LocalTokens* tokens);
  // Stops, and removes the socket.
  ~LocalTokenServer();
  LocalTokenServer(const LocalTokenServer&) = delete;
  LocalTokenServer& operator=(const LocalTokenServer&) = delete;

 private:
  LocalTokenServer(std::string path, int listener, int stop, const AccountCache* accounts,
                   LocalTokens* tokens);
  void Serve();
  void Answer(int connection);

  const std::string path_;
  const int listener_;
  const int stop_;  // an eventfd
  const AccountCache* const accounts_;
  LocalTokens* const tokens_;
  std::thread thread_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_LOCAL_TOKEN_SERVER_H_
