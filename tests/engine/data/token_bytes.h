// What the tests of engine/data share: files in a folder of their own.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_TEST_DIRECTORY_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_TEST_DIRECTORY_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

namespace megatrain {

// A directory that is removed with all it holds.
class TestDirectory {
 public:
  TestDirectory() {
    std::string name = ::testing::TempDir() + "/data_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }

 private:
  std::string path_;
};

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline std::string Npy(const std::string& dictionary, const std::string& data) {
  std::string header = dictionary + "\n";
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + data;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_TEST_DIRECTORY_H_
