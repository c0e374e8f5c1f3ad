// Describes how a layer mixes tokens: by attention, with its rotations, or by a delta net.
#ifndef MEGATRAIN_ENGINE_MODEL_ATTENTION_DESCRIPTION_H_
#define MEGATRAIN_ENGINE_MODEL_ATTENTION_DESCRIPTION_H_

#include <cstdint>
#include <vector>

namespace megatrain {

enum class RopeType { kDefault, kLinear, kLlama3, kYarn, kLongrope, kProportional };
// Returns transformers' name: "default".
const char* RopeTypeName(RopeType type);

// The settings of rotary embeddings, as in transformers' modeling_rope_utils.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  // The number of elements of a head that are rotated; even. They are the first ones, or the last
  // ones if the layer has latents (LatentDescription).
  int64_t rotary_dim = 0;
  bool interleaved = false;  // pairs are (2 i, 2 i + 1), not (i, i + rotary_dim / 2)
  double theta = 10000.0;
  double factor = 1.0;                 // linear, llama3, yarn, longrope, proportional
  double low_frequency_factor = 1.0;   // llama3
  double high_frequency_factor = 4.0;  // llama3
  // original_max_position_embeddings; for llama3, yarn, longrope and position_scale
  int64_t original_positions = 0;
  double beta_fast = 32.0;  // yarn
  double beta_slow = 1.0;   // yarn
  // yarn, longrope: multiplies cosine and sine; 0 = the type's own default (rope.h).
  double attention_factor = 0.0;
  bool truncate = true;       // yarn: round the corrected range to whole dimensions
  int64_t turning_pairs = 0;  // proportional: so many first pairs turn; the others have angle 0
  // A factor of attention's scores (DeepSeek-V3): (0.1 mscale_all_dim ln(factor) + 1)^2, or 1.
  // AttentionDescription::score_scale includes it.
  double score_factor = 1.0;
  // longrope, [rotary_dim / 2]: frequencies are divided by short_factors if sequences have up to
  // original_positions tokens, and by long_factors if they may be longer. The length that counts is
  // data.sequence_length in training (also for sample answers) and evaluation. In generation it is
  // that of the longest prompt with its answer. (In transformers it is that of the longest document
  // of each batch.)
  std::vector<double> short_factors, long_factors;
  // > 0: the rotated elements at position p are multiplied by 1 + position_scale * ln(1 + floor(p /
  // original_positions)) (Ministral 3's queries).
  double position_scale = 0.0;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

enum class QkNorm {
  kNone,
  kHead,  // each head of queries and keys is normed, with one weight [head_dim]
  kFull,  // all heads together, with weights [heads head_dim] and [kv_heads head_dim]
};

// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2). Queries are projected to one latent,
// keys and values to another. Each latent is normed and projected to heads. Only the end of a query
// or key is rotated. All heads share one end of keys, which is projected beside their latent.
struct LatentDescription {
  int64_t key_value_rank = 0;  // of the latent of keys and values; 0: there are no latents
  int64_t query_rank = 0;      // 0: queries have no latent and are projected as usual
  int64_t rotary_dim = 0;      // the last elements of queries and keys, which are rotated
  int64_t value_dim = 0;       // of a head's values
  double norm_epsilon = 1e-6;  // of the latents' norms

  bool is_there() const { return key_value_rank > 0; }
  friend bool operator==(const LatentDescription&, const LatentDescription&) = default;
};

// Causal self-attention with queries, keys and values projected from the same rows. CheckModel
// (model_check.h) says which parts go together. AttentionShaping is in engine/device/kernel_args.h.
struct AttentionDescription {
  int64_t heads = 0;     // of queries
  int64_t kv_heads = 0;  // of keys and values; divides heads
  int64_t head_dim = 0;  // of queries and keys
  LatentDescription latent;
  double score_scale = 0.0;  // scores are score_scale * q.k
  int64_t window = 0;        // as AttentionShaping; 0: all earlier tokens
  double softcap = 0.0;      // as AttentionShaping; 0: none
  bool sinks = false;        // self_attn.sinks [heads], as in AttentionShaping
  bool qkv_bias = false;     // with latents: of the projections to them
  bool output_bias = false;
  bool fused_qkv = false;  // on disk self_attn.qkv_proj, else q_proj, k_proj and v_proj
  // The result is multiplied by sigmoid(gate). Gates are projected with the queries: on disk
  // self_attn.q_proj has head_dim rows of queries, then as many of gates, for each head.
  bool output_gate = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool value_norm = false;  // each head of values is normed, without a weight; needs a QkNorm
  // Values are the projected keys, before the keys' norm and rotation; needs a value_norm.
  bool values_are_keys = false;
  // Indices in ModelDescription::ropes; -1: not rotated.
  int query_rope = 0;
  int key_rope = 0;
  // The number of a set of keys and values that several layers use. If projects_keys is true, this
  // layer makes the set for later layers; otherwise it uses the set. Sets are counted from 0 in the
  // order of the layers that make them. -1: the layer's keys and values are for itself alone.
  int key_set = -1;
  bool projects_keys = true;  // false: the layer projects queries only and needs a key_set

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t gate_width() const { return output_gate ? q_width() : 0; }
  int64_t value_dim() const { return latent.is_there() ? latent.value_dim : head_dim; }
  // Elements per token of keys and values.
  int64_t cache_width() const { return kv_heads * (head_dim + value_dim()); }
  // Elements per token of the keys without their rotated ends, and of the values, if there are
  // latents.
  int64_t expanded_width() const { return cache_width() - kv_heads * latent.rotary_dim; }
  // Elements per token that are projected: queries, gates, keys and values, or their latents and
  // the end of keys that all heads share.
  int64_t projected_width() const {
    if (latent.is_there()) {
      const int64_t queries = latent.query_rank > 0 ? latent.query_rank : q_width();
      return queries + latent.key_value_rank + latent.rotary_dim;
    }
    const int64_t keys = projects_keys ? kv_width() : 0;
    return q_width() + gate_width() + (values_are_keys ? 1 : 2) * keys;
  }
  // Elements per token of the rotated queries and keys and the normed values, if there is a QkNorm.
  int64_t rotated_width() const {
    return q_width() + (projects_keys ? (value_norm ? 2 : 1) * kv_width() : 0);
  }
  friend bool operator==(const AttentionDescription&, const AttentionDescription&) = default;
};

// How a delta net's projections lie on disk.
enum class DeltaTensors {
  kApart,  // linear_attn.in_proj_qkv [Q | K | V], in_proj_z, in_proj_b, in_proj_a (Qwen3.5)
  // linear_attn.in_proj_qkvz with rows [q | k | v | z] for each key head, in_proj_ba with rows
  // [b | a]; v, z, b and a are those of the value heads of the key head (Qwen3-Next)
  kByKeyHead,
};

// A gated delta net: linear attention whose memory is a state of fixed size for each value head
// (engine/device/delta_args.h). A causal convolution is applied to queries, keys and values first,
// and a gated norm to the result. Yang et al. 2024.
struct DeltaNetDescription {
  int64_t key_heads = 0;    // of queries too; 0: the layer has none
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;      // of a head
  int64_t value_dim = 0;
  int64_t kernel = 0;  // the tokens that the convolution takes, 2 to kCausalConvKernelMax
  DeltaTensors tensors = DeltaTensors::kApart;

  int64_t keys_width() const { return key_heads * key_dim; }
  int64_t values_width() const { return value_heads * value_dim; }
  // Queries, keys and values, which the convolution takes.
  int64_t channels() const { return 2 * keys_width() + values_width(); }
  // The channels, the norm's gates z, and one b and one a for each value head.
  int64_t projected_width() const { return channels() + values_width() + 2 * value_heads; }
  friend bool operator==(const DeltaNetDescription&, const DeltaNetDescription&) = default;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_ATTENTION_DESCRIPTION_H_
