// AttentionPart mixes tokens, between the two products of a layer's first half. The half
// (attention_half.h) projects the normed input to a.projected with one product. From that the part
// computes a.mixed, whose rows also depend on earlier tokens. The half projects a.mixed back to the
// residual stream. `a` is BoundLayer::a. There is one implementation for each AttentionKind.
//
// Functions with a chunk compute its rows, the others the whole micro-batch. They queue work on the
// stream of `l` and return the errors of its kernels. Weight gradients go to `gradient`. A part has
// no state, so any number of threads may use it.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_PART_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_PART_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/device/kernel_sizes.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

class AttentionPart {
 public:
  // Computes the chunk's rows of what Mix reads (rotated queries and keys, say) from those of
  // a.projected.
  virtual absl::Status Prepare(const BoundLayer& l, const Chunk& chunk) const = 0;
  // Computes a.mixed. Writes the keys and values of a key_set that the layer makes (keys and values
  // which later layers read, shared_rows.h) to batch.shared, unless it attends over the cache. With
  // a cache it stores the layer's own keys and values there, or moves a delta net's states on.
  // REQUIRES: Prepare of all chunks.
  virtual absl::Status Mix(const BoundLayer& l) const = 0;
  // Recomputes the activations that KeepLevel::kCheapRecomputed does not keep, for the backward
  // pass. a.mixed is among them only if it is the result of a gate or a gated norm. REQUIRES: the
  // activations of KeepLevel::kCheapRecomputed are there.
  virtual absl::Status Recompute(const BoundLayer& l) const = 0;

  // Returns true if any weight of the part itself is trained.
  virtual bool Trains(const BoundLayer& l) const = 0;
  // Computes the gradient with respect to what Mix read. Takes scratch.dmixed, the gradient with
  // respect to a.mixed. Writes the result to scratch.dprojected or, with latents, to
  // scratch.dexpanded. May overwrite a.mixed, scratch.dmixed and, for a delta net, a.delta.out. A
  // layer that uses the key_set of an earlier one adds the gradients with respect to keys and
  // values to the sums in batch.shared; the last such layer writes them. The layer that made the
  // set adds these sums to its own gradients. REQUIRES: the activations are there, after Recompute
  // if they were not kept. MixBackward was called for all later layers of the micro-batch that need
  // it.
  virtual absl::Status MixBackward(const BoundLayer& l, const LayerBackwardScratch& scratch,
                                   const TileGradient& gradient) const = 0;
  // Computes the gradient with respect to the chunk's rows of a.projected from the result of
  // MixBackward, and writes it to those rows of scratch.dprojected. With latents it overwrites the
  // chunk's rows of scratch.dexpanded and of the normed latents, and a.latent.expanded. Call it
  // once for each chunk.
  virtual absl::Status PrepareBackward(const BoundLayer& l, const Chunk& chunk,
                                       const LayerBackwardScratch& scratch,
                                       const TileGradient& gradient) const = 0;

  // Returns the device bytes of LayerBackwardScratch::workspace that MixBackward needs for a layer,
  // for a micro-batch of `tokens` tokens in documents of up to `sequence` tokens. By default it is
  // that of the kernel AttentionBackward.
  virtual int64_t WorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                                 int64_t sequence, const KernelSizes& sizes) const;
  // Returns the device bytes of LayerCache::data for a layer. By default they are those of keys and
  // values of every token, or 0 if the layer uses those of another layer.
  virtual int64_t CacheBytes(const LayerDescription& layer, DType dtype,
                             const CacheSize& size) const;
  // Announces the attention calls of Mix and MixBackward to the kernels, so that the kernels can
  // prepare them in advance. Reads the memory of batch.document_starts during the call; of the
  // other pointers only the addresses are used. REQUIRES: batch.shared has its key_sets.
  virtual void Announce(const BoundLayer& l, const LayerBackwardScratch& scratch) const = 0;

 protected:
  ~AttentionPart() = default;
};

// Returns the part of a layer, which lives as long as the program.
const AttentionPart& PartOf(const LayerDescription& layer);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_PART_H_
