#include "server/transport/utf8.h"

#include <simdjson.h>

namespace megatrain {

std::string ValidUtf8(std::string text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return text;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return text;
}

}  // namespace megatrain
