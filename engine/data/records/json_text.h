// Writes texts as JSON strings.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_JSON_TEXT_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_JSON_TEXT_H_

#include <string>
#include <string_view>

namespace megatrain {

// Appends `text`, in quotes and with what JSON wants escaped, to `json`. Bytes of invalid UTF-8
// stay as they are.
void AppendJsonText(std::string_view text, std::string* json);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_JSON_TEXT_H_
