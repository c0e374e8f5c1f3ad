// Compresses a test's text.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_COMPRESSED_TEXT_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_COMPRESSED_TEXT_H_

#include <zlib.h>
#include <zstd.h>

#include <string>

namespace megatrain {

inline std::string Gzip(const std::string& text) {
  z_stream stream = {};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_RECORDS_COMPRESSED_TEXT_H_
