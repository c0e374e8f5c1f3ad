#include "engine/data/records/json_text.h"

#include <cstddef>

namespace megatrain {

void AppendJsonText(std::string_view text, std::string* json) {
  constexpr char kHex[] = "0123456789abcdef";
  *json += '"';
  size_t copied = 0;  // of `text`
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json->append(text, copied, i - copied);
    copied = i + 1;
    if (c < 0x20) {
      *json += "\\u00";
      *json += kHex[c >> 4];
      *json += kHex[c & 15];
    } else {
      *json += '\\';
      *json += static_cast<char>(c);
    }
  }
  json->append(text, copied, text.size() - copied);
  *json += '"';
}

}  // namespace megatrain
