// What this user proves itself with to a server on TCP, and by whom the server must be vouched for.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
#define MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// Paths of files, absolute; empty: none.
struct CredentialFiles {
  std::string ca;  // PEM: who issues the server's certificate; none: whom the system trusts
  std::string certificate;  // PEM: the user's, and its key
  std::string key;
  std::string token;  // holds a token, as `megatraind token add` printed it

  bool operator==(const CredentialFiles&) const = default;
};

// The contents.
struct Credentials {
  std::string ca, certificate, key, token;
};

// InvalidArgument names the file and what is wrong: not there, empty, a certificate without its
// key, or a key or token that others than its owner may read.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

// Whether it can be a token that is sent in a call's metadata.
bool IsToken(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
