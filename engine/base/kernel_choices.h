// Settings of a job that kernels act on. The job file's reader and the devices share them.
#ifndef MEGATRAIN_ENGINE_BASE_KERNEL_CHOICES_H_
#define MEGATRAIN_ENGINE_BASE_KERNEL_CHOICES_H_

namespace megatrain {

// The attention kernels that a device uses: its own or those of a library (cuDNN).
enum class AttentionChoice {
  kAuto,     // the library's for calls that it supports, the device's own for the rest
  kLibrary,  // the library's; calls that it does not support fail
  kOwn,      // the device's own for every call
};

// The preference objective of a job with `training.objective: dpo`. engine/device/preference_term.h
// has the formulas.
enum class PreferenceLossKind { kSigmoid, kRobust, kHinge, kIpo };
struct PreferenceObjective {
  PreferenceLossKind loss = PreferenceLossKind::kSigmoid;
  double beta = 0.1;           // above 0
  double label_smoothing = 0;  // in [0, 0.5); kSigmoid and kRobust alone use it
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_KERNEL_CHOICES_H_
