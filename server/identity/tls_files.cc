#include "server/identity/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr int64_t kFileBytesMax = int64_t{1} << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, Free>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Free>;

absl::Status Invalid(const std::string& key, const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", path, ": ", why));
}

absl::StatusOr<std::string> Read(const std::string& key, const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(PosixFileSystem(), path, kFileBytesMax);
  if (text.ok()) return text;
  return absl::Status(text.status().code(), absl::StrCat(key, ": ", text.status().message()));
}

std::unique_ptr<BIO, Free> Open(const std::string& text) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Nothing asks on a terminal for the password of an encrypted file.
int NoPassword(char*, int, int, void*) { return 0; }

// All of a text, the first one first.
std::vector<Certificate> ParseCertificates(const std::string& text) {
  std::vector<Certificate> certificates;
  const std::unique_ptr<BIO, Free> bio = Open(text);
  while (true) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  ERR_clear_error();
  return certificates;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm parts = {};
  ASN1_TIME_to_tm(time, &parts);
  return absl::FromTimeT(timegm(&parts));
}

// What to say of its time, or "".
std::string TimeWarning(const X509* certificate, absl::Time now) {
  time_t seconds = absl::ToTimeT(now);
  const auto time_of = [](const ASN1_TIME* time) {
    return absl::FormatTime("%Y-%m-%d", TimeOf(time), absl::UTCTimeZone());
  };
  const ASN1_TIME* const begins = X509_get0_notBefore(certificate);
  const ASN1_TIME* const ends = X509_get0_notAfter(certificate);
  if (X509_cmp_time(ends, &seconds) < 0) {
    return absl::StrCat("expired on ", time_of(ends), ": connections with it are refused");
  }
  if (X509_cmp_time(begins, &seconds) > 0) {
    return absl::StrCat("is valid only from ", time_of(begins), " on");
  }
  return "";
}

absl::StatusOr<std::vector<Certificate>> CheckCertificates(const std::string& key,
                                                           const std::string& path,
                                                           const std::string& text, absl::Time now,
                                                           std::vector<std::string>* warnings) {
  std::vector<Certificate> certificates = ParseCertificates(text);
  if (certificates.empty()) {
    return Invalid(key, path, "holds no PEM certificate (-----BEGIN CERTIFICATE-----)");
  }
  for (const Certificate& certificate : certificates) {
    const std::string warning = TimeWarning(certificate.get(), now);
    if (!warning.empty()) warnings->push_back(absl::StrCat(key, ": ", path, ": ", warning));
  }
  return certificates;
}

absl::Status CheckKeyMode(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    const absl::Status error = FileError("look at", path, errno);
    return absl::Status(error.code(), absl::StrCat("tls.key: ", error.message()));
  }
  const mode_t forbidden = info.st_uid == 0 ? 037 : 077;
  if ((info.st_mode & forbidden) != 0) {
    return Invalid("tls.key", path,
                   absl::StrFormat("has mode %04o: whoever can read the key can pass for this "
                                   "server; chmod 0600",
                                   info.st_mode & 07777));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const TlsPaths& paths, const std::string& text, X509* certificate) {
  const std::unique_ptr<BIO, Free> bio = Open(text);
  const PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return Invalid("tls.key", paths.key,
                   absl::StrContains(text, "ENCRYPTED")
                       ? "is encrypted, and a daemon has nobody to ask: store it without a password"
                       : "holds no PEM private key (-----BEGIN PRIVATE KEY-----)");
  }
  const bool matches = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (!matches) {
    return Invalid("tls.key", paths.key,
                   absl::StrCat("is not the key of the certificate in ", paths.certificate,
                                ", whose first must be the server's own"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths, absl::Time now) {
  TlsFiles files;
  MT_ASSIGN_OR_RETURN(files.certificate, Read("tls.certificate", paths.certificate));
  MT_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                      CheckCertificates("tls.certificate", paths.certificate, files.certificate,
                                        now, &files.warnings));
  files.expires = TimeOf(X509_get0_notAfter(chain[0].get()));
  MT_ASSIGN_OR_RETURN(files.key, Read("tls.key", paths.key));
  MT_RETURN_IF_ERROR(CheckKeyMode(paths.key));
  MT_RETURN_IF_ERROR(CheckKey(paths, files.key, chain[0].get()));
  if (!paths.client_ca.empty()) {
    MT_ASSIGN_OR_RETURN(files.client_ca, Read("tls.client_ca", paths.client_ca));
    MT_RETURN_IF_ERROR(
        CheckCertificates("tls.client_ca", paths.client_ca, files.client_ca, now, &files.warnings)
            .status());
  }
  return files;
}

}  // namespace megatrain
