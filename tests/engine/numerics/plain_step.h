// Forward and backward of a whole model by calling the layer templates in order, everything held at
// once: no tiles, no streaming, no schedule. What is wrong here is wrong in templates or kernels;
// what is right here and wrong in a job is wrong in the pipeline.
#ifndef MEGATRAIN_TESTS_ENGINE_NUMERICS_PLAIN_STEP_H_
#define MEGATRAIN_TESTS_ENGINE_NUMERICS_PLAIN_STEP_H_

#include <vector>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/kernels.h"
#include "engine/model/layer/activations.h"
#include "engine/model/model_layout.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {

struct PlainStepResult {
  absl::Status status;
  double loss = 0;
  std::vector<float> logits;  // [sequences * sequence_length, vocabulary]
  NamedTensors gradients;     // by HF name
};

// `weights`: by HF name, rounded to BF16 (ties away from zero) if that is `dtype`. `sequences` of
// the batch go through a layer at a time, in chunks of `chunk_tokens` (0: LayerChunkTokens). The
// kernels must be those of a device whose memory is the host's.
PlainStepResult PlainStep(Kernels& kernels, const ModelLayout& layout, const NamedTensors& weights,
                          DType dtype, const ReferenceBatch& batch,
                          int64_t sequences_per_micro_batch, KeepLevel level,
                          int64_t chunk_tokens = 0);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_NUMERICS_PLAIN_STEP_H_
