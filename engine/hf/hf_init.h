// Makes a Hugging Face directory with random weights.
#ifndef MEGATRAIN_ENGINE_HF_HF_INIT_H_
#define MEGATRAIN_ENGINE_HF_HF_INIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/base/thread_pool.h"

namespace megatrain {

// Returns the names of the presets that InitializeHfDirectory takes.
std::vector<std::string> PresetNames();
// Writes a Hugging Face directory with random weights for a preset. Presets with the bytes
// vocabulary also get its tokenizer; the others get none. With `config_only` no weights are
// written. Weights are made in pieces, in a few dozen MiB of memory whatever the model's size, on
// the threads of `pool`, or on the calling thread if it is null.
//
// Weights depend on the preset, which also decides their type, and on `seed` alone. Returns
// InvalidArgument, listing the presets, for an unknown one, and FailedPrecondition if `directory`
// exists and is not an empty directory. Returns the errors of WriteHfWeights and of
// ReplaceDirectory (hf_writer.h), which says what is at `directory` after an error or a crash.
absl::Status InitializeHfDirectory(const std::string& preset, uint64_t seed, bool config_only,
                                   const std::string& directory, ThreadPool* pool = nullptr,
                                   FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_HF_INIT_H_
