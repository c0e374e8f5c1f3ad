#include "server/identity/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>

namespace megatrain {
namespace {

// gRPC's C++ API serves certificates that stay (SslServerCredentials), or watches files by itself
// and takes them unseen (FileWatcherCertificateProvider: a key of another certificate ends all
// TLS). Its C API asks for them at each connection.
class TlsCredentials : public grpc::ServerCredentials {
 public:
  explicit TlsCredentials(TlsFileWatch* watch) : watch_(watch) {
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            watch->asks_for_client_certificates() ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                                  : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            &TlsCredentials::Fetch, this));
  }
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }

  // Callers are judged by the Authenticator.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Of one listener, which calls it for one connection at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* const credentials = static_cast<TlsCredentials*>(self);
    std::shared_ptr<const TlsFiles> files = credentials->watch_->Current();
    if (files == credentials->served_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {files->key.c_str(), files->certificate.c_str()};
    // gRPC 1.51 wants an authority even where no client is asked for a certificate; it is not used.
    const std::string& authority = files->client_ca.empty() ? files->certificate : files->client_ca;
    *config = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, 1);
    credentials->served_ = std::move(files);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  TlsFileWatch* const watch_;
  grpc_server_credentials* credentials_ = nullptr;
  std::shared_ptr<const TlsFiles> served_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(TlsFileWatch* watch) {
  return std::make_shared<TlsCredentials>(watch);
}

}  // namespace megatrain
