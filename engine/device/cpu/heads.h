// Copies and sums of the heads of a range of tokens on the cpu device (see CopyHeadsArgs and
// SumHeadsArgs).
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_HEADS_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_HEADS_H_

#include <cstdint>

#include "engine/device/kernels.h"

namespace megatrain {

// Both compute tokens [begin, end). The pointers are those of token 0; args.tokens is not read.
// Several threads may compute different ranges at once.
void CopyHeadsOfTokens(const CopyHeadsArgs& args, int64_t begin, int64_t end);
void SumHeadsOfTokens(const SumHeadsArgs& args, int64_t begin, int64_t end);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_HEADS_H_
