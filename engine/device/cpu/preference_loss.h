// The loss of pairs of answers (see PreferenceLossArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_PREFERENCE_LOSS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_PREFERENCE_LOSS_H_

#include <cstdint>

#include "engine/device/kernel_args.h"

namespace megatrain {

void PreferenceLossOfPair(const PreferenceLossArgs& args, int64_t pair);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_PREFERENCE_LOSS_H_
