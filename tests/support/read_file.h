#ifndef MEGATRAIN_TESTS_SUPPORT_READ_FILE_H_
#define MEGATRAIN_TESTS_SUPPORT_READ_FILE_H_

#include <fstream>
#include <iterator>
#include <string>

namespace megatrain {

// The file's bytes; "" if it cannot be read.
inline std::string ReadFileOrEmpty(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_READ_FILE_H_
