// Directories of a test's own.
#ifndef MEGATRAIN_TESTS_SUPPORT_TEST_DIRECTORY_H_
#define MEGATRAIN_TESTS_SUPPORT_TEST_DIRECTORY_H_

#include <string>

namespace megatrain {

// Makes a fresh directory and removes it with all that it holds, unless the test has failed.
class TestDirectory {
 public:
  enum class Place {
    kTest,  // in the test's temporary directory, which other accounts may not enter
    // In /tmp: for sockets, whose paths must be short, and for tests with several accounts. The
    // mode is 0700 at first.
    kShort,
  };

  explicit TestDirectory(Place place = Place::kTest);
  ~TestDirectory();
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  // Absolute, without symbolic links.
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file in it. Returns the file's path.
  std::string Write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

// Makes the directory `name` for the running test, in the test's temporary directory, or empties
// it. Returns its path. Nothing removes it. REQUIRES: a test runs (not SetUpTestSuite).
std::string FreshDirectory(const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_TEST_DIRECTORY_H_
