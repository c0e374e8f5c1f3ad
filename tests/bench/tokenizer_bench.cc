// Encodes the documents of files with a tokenizer on one thread, for tokenizer_bench.py. A file
// holds documents, each with its number of bytes before it (four bytes, little-endian).
//
//   tokenizer_bench TOKENIZER.JSON < requests
//
// A request is a line "FILE IDS": the ids of all documents go to the file IDS ("-": to none), four
// bytes each. The answer is a line with the seconds of processor time that encoding took.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/hf_tokenizer.h"

namespace megatrain {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string_view> Documents(std::string_view file) {
  std::vector<std::string_view> documents;
  for (uint32_t bytes = 0; file.size() >= sizeof(bytes);) {
    std::memcpy(&bytes, file.data(), sizeof(bytes));
    documents.push_back(file.substr(sizeof(bytes), bytes));
    file.remove_prefix(sizeof(bytes) + documents.back().size());
  }
  return documents;
}

int Main(const std::string& tokenizer_path) {
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = Read(tokenizer_path)});
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  std::string path, ids_path;
  std::vector<int32_t> ids;
  while (std::cin >> path >> ids_path) {
    const std::string content = Read(path);
    const std::vector<std::string_view> documents = Documents(content);
    ids.clear();
    ids.reserve(content.size());
    const std::clock_t begin = std::clock();
    for (const std::string_view document : documents) {
      if (const absl::Status status = (*tokenizer)->Encode(document, &ids); !status.ok()) {
        std::cerr << status << "\n";
        return 1;
      }
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (ids_path != "-") {
      std::ofstream out(ids_path, std::ios::binary);
      out.write(reinterpret_cast<const char*>(ids.data()),
                static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
      out.close();
    }
    std::cout << seconds << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER.JSON\n");
    return 2;
  }
  return megatrain::Main(argv[1]);
}
