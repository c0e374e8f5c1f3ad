#include "engine/hf/config/wrapper_family.h"

#include <algorithm>
#include <utility>

namespace megatrain {
namespace {

// Returns the names of models whose files have kept Llava's old ones, which transformers maps to
// the modules' own.
std::vector<WrapperNames> LlavaNames() {
  return {{"language_model.model.", "language_model.", {"vision_tower.", "multi_modal_projector."}},
          {"model.language_model.", "", {"model.vision_tower.", "model.multi_modal_projector."}}};
}

// Qwen 3.5, dense or with experts. The tensors of layers that predict further tokens are carried.
WrapperFamily Qwen35(std::string model_type, std::string architecture) {
  return {model_type,
          std::move(architecture),
          {model_type + "_text"},
          /*tied_embeddings=*/false,
          {"vision_config", "image_token_id", "video_token_id", "vision_start_token_id",
           "vision_end_token_id", "initializer_range"},
          {{"model.language_model.", "", {"model.visual.", "mtp."}}},
          /*unread_text_keys=*/{},
          /*text_keeps_names=*/true};
}

const std::vector<WrapperFamily>& Families() {
  static const auto& families = *new std::vector<WrapperFamily>{
      {"gemma3",
       "Gemma3ForConditionalGeneration",
       {"gemma3_text"},
       /*tied_embeddings=*/true,
       {"vision_config", "mm_tokens_per_image", "boi_token_index", "boi_token_id",
        "eoi_token_index", "eoi_token_id", "image_token_index", "image_token_id",
        "initializer_range"},
       LlavaNames(),
       /*unread_text_keys=*/{"final_logit_softcapping"}},
      {"gemma4",
       "Gemma4ForConditionalGeneration",
       {"gemma4_text"},
       /*tied_embeddings=*/true,
       {"vision_config", "audio_config", "boi_token_id", "eoi_token_id", "image_token_id",
        "video_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index", "audio_token_id",
        "vision_soft_tokens_per_image", "initializer_range"},
       {{"model.language_model.",
         "",
         {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
          "model.embed_audio."}}}},
      {"mistral3",
       "Mistral3ForConditionalGeneration",
       {"mistral", "ministral3"},
       /*tied_embeddings=*/true,
       {"vision_config", "image_token_index", "image_token_id", "projector_hidden_act",
        "vision_feature_layer", "multimodal_projector_bias", "spatial_merge_size",
        "initializer_range"},
       LlavaNames(),
       /*unread_text_keys=*/{"layer_types"}},
      Qwen35("qwen3_5", "Qwen3_5ForConditionalGeneration"),
      Qwen35("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
  };
  return families;
}

}  // namespace

const WrapperFamily* FindWrapperFamily(const std::string& model_type) {
  for (const WrapperFamily& family : Families()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::vector<std::string> WrapperFamilyNames() {
  std::vector<std::string> names;
  for (const WrapperFamily& family : Families()) names.push_back(family.model_type);
  return names;
}

std::string PrefixOutOfWrapper(const std::string& text_family) {
  for (const WrapperFamily& family : Families()) {
    if (!family.text_keeps_names ||
        std::ranges::find(family.text_families, text_family) == family.text_families.end()) {
      continue;
    }
    // The names of the modules, whose head has none of its own.
    for (const WrapperNames& names : family.names) {
      if (names.head_prefix.empty()) return names.model_prefix;
    }
  }
  return "";
}

WrapperDescription DescribeWrapper(const WrapperFamily& family, const WrapperNames& names) {
  WrapperDescription wrapper;
  wrapper.family = family.model_type;
  wrapper.model_prefix = names.model_prefix;
  wrapper.head_prefix = names.head_prefix;
  wrapper.carried_prefixes = names.carried_prefixes;
  return wrapper;
}

}  // namespace megatrain
