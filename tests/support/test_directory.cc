#include "tests/support/test_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace megatrain {

namespace fs = std::filesystem;

TestDirectory::TestDirectory(Place place) {
  std::string pattern = (place == Place::kShort ? "/tmp" : ::testing::TempDir()) + "/mt_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    ADD_FAILURE() << "cannot make " << pattern;
    return;  // the path is empty: nothing is ever removed
  }
  path_ = fs::canonical(pattern).string();
}

TestDirectory::~TestDirectory() {
  std::error_code ignored;
  if (!path_.empty() && !::testing::Test::HasFailure()) fs::remove_all(path_, ignored);
}

std::string TestDirectory::Write(const std::string& name, const std::string& content) const {
  std::ofstream(*this / name, std::ios::binary) << content;
  return *this / name;
}

std::string FreshDirectory(const std::string& name) {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string directory =
      ::testing::TempDir() + "/" + test.test_suite_name() + "." + test.name() + "/" + name;
  fs::remove_all(directory);
  fs::create_directories(directory);
  return directory;
}

}  // namespace megatrain
