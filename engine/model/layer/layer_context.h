// LayerContext and MicroBatchView are the arguments that the functions of all layer templates
// share.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_LAYER_CONTEXT_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_LAYER_CONTEXT_H_

#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/device/kernels.h"
#include "engine/model/layer/shared_rows.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// A layer's memory of earlier tokens, for generation, laid out by its AttentionPart: the keys and
// values of every token, or states of fixed size for each sequence. Does not own memory.
struct LayerCache {
  // Device memory of LayerCacheBytes bytes (decoder_layer.h); null: no cache. A layer without keys
  // of its own has the memory of the layer whose keys it uses.
  void* data = nullptr;
  int64_t sequences = 0;  // of a delta net: the sequences whose states it holds
  // True: the micro-batch's tokens continue the sequences in the cache. False: the tokens begin new
  // documents and are only stored in the cache.
  bool attend = false;
};
// The size of the caches of all layers.
struct CacheSize {
  int64_t rows = 0;       // the tokens of all sequences together
  int64_t sequences = 0;  // at most
};

// The cosine and sine of each position's angles. Does not own memory.
struct RopeTable {
  float* cosine = nullptr;  // device [positions, rotary_dim / 2]
  float* sine = nullptr;    // device [positions, rotary_dim / 2]
};

// One micro-batch in device memory, except for document_starts and padding. Does not own memory.
struct MicroBatchView {
  int64_t tokens = 0;
  const int32_t* ids = nullptr;               // device [tokens], in [0, vocabulary), unchecked
  const int32_t* positions = nullptr;         // device [tokens]
  const int32_t* targets = nullptr;           // device [tokens], < 0 if masked
  const int32_t* sorted_positions = nullptr;  // device [tokens], as in EmbeddingBackwardArgs
  const int32_t* document_bounds = nullptr;   // device [tokens, 2], as in AttentionArgs
  const int32_t* document_starts = nullptr;   // host [documents + 1], as Batch::document_starts
  int64_t documents = 0;
  absl::Span<const std::pair<int32_t, int32_t>> padding;  // host, as Batch::padding
  // For a cache: device [tokens], as in CachedAttentionArgs and in DeltaDocuments.
  const int32_t* first_rows = nullptr;
  const int32_t* state_rows = nullptr;
  // Pairs of answers, if the objective compares them; as in PreferenceLossArgs.
  const int32_t* pair_bounds = nullptr;     // device [pairs, 4]
  const double* reference_logps = nullptr;  // device [pairs, 2]
  int64_t pairs = 0;
  SharedRows shared;
};

// The largest LayerContext::whole_rows.
inline constexpr int64_t kWholeRowsMax = 32;

// The model and the device that a function works with. Does not own what it points to.
struct LayerContext {
  const ModelLayout* layout = nullptr;
  DType dtype = DType::kF32;
  AttentionChoice attention = AttentionChoice::kAuto;
  Kernels* kernels = nullptr;
  Stream* stream = nullptr;
  absl::Span<const RopeTable> ropes;  // by ModelDescription::ropes
  int64_t chunk_tokens = 0;           // LayerChunkTokens, or fewer; for layers and experts
  int layer = 0;                      // for decoder layers
  int tile = 1;                       // the tile whose weights are passed; for decoder layers
  LayerCache cache;                   // of that layer
  // The least number of rows of a product of experts, so that a token's result does not depend on
  // how many other tokens chose its expert. It is the micro-batch's number of tokens. It is 0,
  // which allows that dependence, for more than kWholeRowsMax tokens and where it does not matter.
  int64_t whole_rows = 0;
};

// Returns `scale`, a factor of embeddings, as the model applies it: in FP32, or rounded to the
// activations' type with rounds_embedding_scale.
inline float EmbeddingScale(const LayerContext& context, double scale) {
  const float factor = static_cast<float>(scale);
  if (!context.layout->model.rounds_embedding_scale || context.dtype != DType::kBF16) return factor;
  return Bf16ToFloat(FloatToBf16(factor));
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_LAYER_CONTEXT_H_
