// Makes the TLS credentials of the gRPC server. Each connection gets the certificate that
// TlsFileWatch has at that moment.
#ifndef MEGATRAIN_SERVER_IDENTITY_TLS_CREDENTIALS_H_
#define MEGATRAIN_SERVER_IDENTITY_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/identity/tls_file_watch.h"

namespace megatrain {

// Returns credentials for one listener; each needs its own, because they remember the files that
// gRPC has. If watch->asks_for_client_certificates(), clients are asked for a certificate. They may
// send none, since a token is enough, but one that they send must be good. `watch` must outlive the
// server.
std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(TlsFileWatch* watch);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_TLS_CREDENTIALS_H_
