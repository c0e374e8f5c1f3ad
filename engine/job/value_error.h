// What is wrong with the value of a key.
#ifndef MEGATRAIN_ENGINE_JOB_VALUE_ERROR_H_
#define MEGATRAIN_ENGINE_JOB_VALUE_ERROR_H_

#include <string>

namespace megatrain {

struct ValueError {
  std::string message;  // empty: it is not what the key expects
  std::string suffix;   // where beneath the key: "[2].path"
  std::string where;    // the place, if it is not the value's own
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_VALUE_ERROR_H_
