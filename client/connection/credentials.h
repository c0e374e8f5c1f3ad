// The files that prove this user to a server on TCP and prove the server to this user.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
#define MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// Absolute paths of files. An empty path means that there is none.
struct CredentialFiles {
  std::string ca;           // PEM: trusted issuers of server certificates; empty: the system's
  std::string certificate;  // PEM: the user's certificate
  std::string key;          // PEM: the private key of `certificate`
  std::string token;        // holds a token, as `megatraind token add` printed it

  bool operator==(const CredentialFiles&) const = default;
};

// The contents of the files. An empty one means that there is none.
struct Credentials {
  std::string ca, certificate, key, token;
};

// Reads the files. Returns InvalidArgument, naming the file, if one cannot be read, is not a
// regular file, is empty or holds no token, or if others than its owner have any access to a key or
// token. A certificate without a key, or the reverse, is InvalidArgument as well.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

// Returns true if `text` can be sent as a token in a call's metadata: it is not empty and has only
// printable ASCII characters other than spaces.
bool IsToken(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
