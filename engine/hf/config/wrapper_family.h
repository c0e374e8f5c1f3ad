// The models of images and text whose text model is trained: what their config.json has around
// text_config, and how their directories name the tensors. Another one is a line of the table in
// wrapper_family.cc.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_WRAPPER_FAMILY_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_WRAPPER_FAMILY_H_

#include <string>
#include <vector>

#include "engine/model/model_description.h"

namespace megatrain {

// A way of naming tensors, with the meaning of WrapperDescription's fields.
struct WrapperNames {
  std::string model_prefix;
  std::string head_prefix;
  std::vector<std::string> carried_prefixes;
};

struct WrapperFamily {
  std::string model_type;    // as in config.json: "gemma3"
  std::string architecture;  // transformers' class: "Gemma3ForConditionalGeneration"
  // The families that text_config may name; the first one is meant if it names none.
  std::vector<std::string> text_families;
  bool tied_embeddings;  // where tie_word_embeddings is absent
  // These keys stand beside text_config for the other parts. They are not looked at.
  std::vector<std::string> own_keys;
  // The ways in which its files may name tensors; the first one is that of published models.
  std::vector<WrapperNames> names;
  // Keys of text_config that the wrapper's class does not look at, though the text model's does.
  std::vector<std::string> unread_text_keys = {};
  // transformers reads and writes the text model alone under the wrapper's names too.
  bool text_keeps_names = false;
};

// Returns null if there is none.
const WrapperFamily* FindWrapperFamily(const std::string& model_type);
// Returns the model_type of every wrapper in alphabetical order.
std::vector<std::string> WrapperFamilyNames();

// Returns what stands in place of "model." in the names of a text model of `text_family` that
// transformers took out of a wrapper and saved; "" if they have no names of their own.
std::string PrefixOutOfWrapper(const std::string& text_family);

// Returns what `family` says, for files that name tensors as `names`.
WrapperDescription DescribeWrapper(const WrapperFamily& family, const WrapperNames& names);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_WRAPPER_FAMILY_H_
