// Declares the value of a key whose value is a list of prompts.
#ifndef MEGATRAIN_ENGINE_JOB_PROMPT_VALUE_H_
#define MEGATRAIN_ENGINE_JOB_PROMPT_VALUE_H_

#include <vector>

#include "engine/config/config_key.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Returns the value for a list of texts and of maps with the key `messages`, which is read into
// `prompts`. `prompts` must outlive the result. A map may also have `system`, `tools`, `documents`
// and `chat_template_kwargs`. Maps are kept as JSON. A scalar in them that is in quotes or a block
// is a text. Any other becomes the number or boolean that it reads as in JSON, a boolean also from
// YAML's True, TRUE, False and FALSE, and else a text; `null`, `~` and no value become null.
ConfigValue Prompts(std::vector<Prompt>* prompts);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_PROMPT_VALUE_H_
