// The version of megatraind and megatrain.
#ifndef MEGATRAIN_SERVER_BASE_VERSION_H_
#define MEGATRAIN_SERVER_BASE_VERSION_H_

namespace megatrain {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_BASE_VERSION_H_
