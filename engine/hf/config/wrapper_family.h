// Wrappers are models of images and text whose text model is trained. A WrapperFamily says what
// their config.json has around text_config, and how their directories name the tensors. To add one,
// add it to the table in wrapper_family.cc.
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

// The properties that the wrappers of one model_type share.
struct WrapperFamily {
  std::string model_type;    // as in config.json: "gemma3"
  std::string architecture;  // transformers' class: "Gemma3ForConditionalGeneration"
  // The families that text_config may name; the first one is meant if it names none.
  std::vector<std::string> text_families;
  bool tied_embeddings;  // the value of tie_word_embeddings if it is absent
  // The keys beside text_config that describe the other parts. Their values are not looked at.
  std::vector<std::string> own_keys;
  // The ways in which files of the family may name tensors, at least one. The first one is that of
  // published models.
  std::vector<WrapperNames> names;
  // Keys of text_config that the wrapper's class does not look at, though the text model's does.
  std::vector<std::string> unread_text_keys = {};
  // True if transformers also reads and writes the text model alone under the wrapper's names.
  bool text_keeps_names = false;
};

// Returns the family, valid as long as the process, or null if there is none of that model_type.
const WrapperFamily* FindWrapperFamily(const std::string& model_type);
// Returns the model_type of every wrapper in alphabetical order.
std::vector<std::string> WrapperFamilyNames();

// Returns the prefix that the tensors of a text model have in place of "model." after transformers
// took it out of a wrapper and saved it alone ("model.language_model."). `text_family` is the text
// model's model_type. Returns "" if no wrapper of it has text_keeps_names.
std::string PrefixOutOfWrapper(const std::string& text_family);

// Returns the description of a wrapper whose files name tensors as `names`, without the number and
// size of carried tensors. `names` is one of family.names.
WrapperDescription DescribeWrapper(const WrapperFamily& family, const WrapperNames& names);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_WRAPPER_FAMILY_H_
