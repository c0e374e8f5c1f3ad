// Contents of files of tokens.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_TOKEN_BYTES_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_TOKEN_BYTES_H_

#include <string>
#include <vector>

namespace megatrain {

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

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_TOKEN_BYTES_H_
