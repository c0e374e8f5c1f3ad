#ifndef MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_
#define MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_

namespace megatrain {

// Which attention kernels a device uses. kAuto takes a library's kernels for the calls that they
// support and the device's own for the rest; kLibrary and kOwn take one of the two alone.
enum class AttentionChoice { kAuto, kLibrary, kOwn };

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_
