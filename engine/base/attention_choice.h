#ifndef MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_
#define MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_

namespace megatrain {

// Whose kernels compute attention: those of a library where it takes the call, else the device's
// own; the library's alone; the device's own alone.
enum class AttentionChoice { kAuto, kLibrary, kOwn };

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_ATTENTION_CHOICE_H_
