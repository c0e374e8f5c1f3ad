// Certificates made while the test runs.
#ifndef MEGATRAIN_TESTS_SERVER_IDENTITY_TEST_CERTIFICATES_H_
#define MEGATRAIN_TESTS_SERVER_IDENTITY_TEST_CERTIFICATES_H_

#include <memory>
#include <string>

namespace megatrain {

struct TestCertificate {
  std::string certificate;  // PEM
  std::string key;          // PEM
};

// Who issues certificates.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name = "test authority");
  ~TestAuthority();

  // For the common name `name`; of a server if it has `alternative_names`, as in
  // "IP:127.0.0.1,DNS:localhost". Valid from a day ago until so many days from now, which may be
  // below 0.
  TestCertificate Issue(const std::string& name, const std::string& alternative_names = "",
                        int days = 30) const;
  // Its own certificate, PEM.
  std::string certificate() const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_IDENTITY_TEST_CERTIFICATES_H_
