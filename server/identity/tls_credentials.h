// TLS of the gRPC server: each connection is served with the files as they are when it comes.
#ifndef MEGATRAIN_SERVER_IDENTITY_TLS_CREDENTIALS_H_
#define MEGATRAIN_SERVER_IDENTITY_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/identity/tls_material.h"

namespace megatrain {

// For one listener: gRPC asks each listener's credentials by itself what has changed. A client's
// certificate is asked for if there is an authority of them, and not demanded: a token is enough as
// well; one that is given must be good. `material` must outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(TlsMaterial* material);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_TLS_CREDENTIALS_H_
