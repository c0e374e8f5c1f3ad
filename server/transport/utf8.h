// Texts of messages must be UTF-8: their receiver cannot read a message with other bytes in it, and
// paths and library messages may hold any.
#ifndef MEGATRAIN_SERVER_TRANSPORT_UTF8_H_
#define MEGATRAIN_SERVER_TRANSPORT_UTF8_H_

#include <string>

namespace megatrain {

// `text`, or with '?' for every byte beyond ASCII if it is not UTF-8.
std::string ValidUtf8(std::string text);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_UTF8_H_
