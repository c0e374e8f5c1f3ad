#ifndef MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_
#define MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_

namespace megatrain {

// The attention kernels that a device uses. kLibrary and kOwn take a library's (cuDNN's) or the
// device's own kernels for every call. kAuto takes the library's for the calls that they support
// and the device's own for the rest.
enum class AttentionChoice { kAuto, kLibrary, kOwn };

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_
