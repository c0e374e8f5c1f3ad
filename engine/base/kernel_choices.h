// Settings of a job that kernels act on. The job file's reader and the devices share them.
#ifndef MEGATRAIN_ENGINE_BASE_KERNEL_CHOICES_H_
#define MEGATRAIN_ENGINE_BASE_KERNEL_CHOICES_H_

namespace megatrain {

// The attention kernels that a device uses. kOwn takes the device's own kernels for every call.
// kLibrary takes a library's (cuDNN's), and calls that they do not support fail. kAuto takes the
// library's for the calls that they support and the device's own for the rest.
enum class AttentionChoice { kAuto, kLibrary, kOwn };

// The objective of training.objective: dpo. engine/device/preference_term.h has the formulas.
enum class PreferenceLossKind { kSigmoid, kRobust, kHinge, kIpo };
struct PreferenceObjective {
  PreferenceLossKind loss = PreferenceLossKind::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_KERNEL_CHOICES_H_
