// Declares the value of a key whose value is a list of prompts.
#ifndef MEGATRAIN_ENGINE_JOB_PROMPT_VALUE_H_
#define MEGATRAIN_ENGINE_JOB_PROMPT_VALUE_H_

#include <vector>

#include "engine/config/config_key.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Returns the value for a list of texts and of maps with the key `messages`, bound to `prompts`,
// which must outlive the result. A map may also have `system`, `tools`, `documents` and
// `chat_template_kwargs`. Maps are kept as JSON. A scalar in them becomes a number, a boolean or
// null if it reads as that in JSON and is neither in quotes nor a block, else a text.
ConfigValue Prompts(std::vector<Prompt>* prompts);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_PROMPT_VALUE_H_
