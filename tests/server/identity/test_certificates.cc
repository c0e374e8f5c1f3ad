#include "tests/server/identity/test_certificates.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace megatrain {
namespace {

constexpr long kDaySeconds = 24 * 60 * 60;

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  const std::string text(data, static_cast<size_t>(bytes));
  BIO_free(bio);
  return text;
}

std::string Pem(X509* certificate) {
  BIO* const bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  return Text(bio);
}

std::string Pem(EVP_PKEY* key) {
  BIO* const bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return Text(bio);
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Not signed yet.
X509* NewCertificate(const std::string& name, EVP_PKEY* key, int days) {
  static long serial = 0;
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  // An expired one was valid before that.
  X509_gmtime_adj(X509_getm_notBefore(certificate),
                  -kDaySeconds + (days < 0 ? days : 0) * kDaySeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), days * kDaySeconds);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  X509_set_pubkey(certificate, key);
  return certificate;
}

}  // namespace

struct TestAuthority::Data {
  ~Data() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
};

TestAuthority::TestAuthority(const std::string& name) : data_(std::make_unique<Data>()) {
  data_->key = EVP_EC_gen("P-256");
  data_->certificate = NewCertificate(name, data_->key, 30);
  X509_set_issuer_name(data_->certificate, X509_get_subject_name(data_->certificate));
  AddExtension(data_->certificate, data_->certificate, NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(data_->certificate, data_->key, EVP_sha256());
}

TestAuthority::~TestAuthority() = default;

TestCertificate TestAuthority::Issue(const std::string& name, const std::string& alternative_names,
                                     int days) const {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = NewCertificate(name, key, days);
  X509_set_issuer_name(certificate, X509_get_subject_name(data_->certificate));
  if (!alternative_names.empty()) {
    AddExtension(certificate, data_->certificate, NID_subject_alt_name, alternative_names);
  }
  X509_sign(certificate, data_->key, EVP_sha256());
  const TestCertificate result{Pem(certificate), Pem(key)};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return result;
}

std::string TestAuthority::certificate() const { return Pem(data_->certificate); }

}  // namespace megatrain
