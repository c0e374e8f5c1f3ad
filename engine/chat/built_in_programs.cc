#include "engine/chat/built_in_programs.h"

namespace megatrain {
namespace {

// Turns between <|im_start|> and <|im_end|>, without a default system turn.
constexpr std::string_view kChatml = R"jinja(
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('messages[' ~ loop.index0 ~ ']: role "' ~ message['role'] ~ '" is none of system, user, assistant') }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] + '<|im_end|>' }}{%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message['content'] + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})jinja";

// Llama 3's turns, without a date.
constexpr std::string_view kLlama3 = R"jinja(
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('messages[' ~ loop.index0 ~ ']: role "' ~ message['role'] ~ '" is none of system, user, assistant') }}
    {%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endgeneration %}
    {%- else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})jinja";

// Mistral 7B Instruct v0.3's turns. The system message stands before the user's message that ends
// the conversation, and is left out where an answer ends it.
constexpr std::string_view kMistral = R"jinja(
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.last and system_message is defined %}
            {{- system_message + '\n\n' }}
        {%- endif %}
        {{- message['content'] + '[/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- generation %}{{- ' ' + message['content'] | trim + eos_token }}{%- endgeneration %}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}
    {%- endif %}
{%- endfor %})jinja";

// Gemma 1's and 2's turns.
constexpr std::string_view kGemma = R"jinja(
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {{- raise_exception("System role not supported (put it into the first user's message)") }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('messages[' ~ loop.index0 ~ ']: role "' ~ message['role'] ~ '" is none of system, user, assistant') }}
    {%- endif %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'assistant' %}
        {{- '<start_of_turn>model\n' }}
        {%- generation %}{{- message['content'] | trim + '<end_of_turn>' }}{%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- '<start_of_turn>' + message['role'] + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %})jinja";

// Stanford Alpaca's prompt, the response right behind it, and the end-of-text token. `instruction`
// and `input` are the fields of an alpaca record.
constexpr std::string_view kAlpaca = R"jinja(
{%- if messages | length + (1 if add_generation_prompt else 0) != 2 or messages[0]['role'] != 'user'
        or messages[-1]['role'] != ('user' if add_generation_prompt else 'assistant') %}
    {{- raise_exception("the alpaca template takes one user's message and the assistant's answer to it, not this conversation of " ~ messages | length ~ " (use chatml or llama3)") }}
{%- endif %}
{%- if input is defined %}
    {{- 'Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n' }}
    {{- '### Instruction:\n' + instruction + '\n\n### Input:\n' + input + '\n\n### Response:' }}
{%- else %}
    {{- 'Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n' }}
    {{- '### Instruction:\n' + messages[0]['content'] + '\n\n### Response:' }}
{%- endif %}
{%- if not add_generation_prompt %}
    {%- generation %}{{- messages[1]['content'] + eos_token }}{%- endgeneration %}
{%- endif %})jinja";

constexpr BuiltInProgram kPrograms[] = {{"chatml", kChatml, false},
                                        {"llama3", kLlama3, false},
                                        {"mistral", kMistral, true},
                                        {"gemma", kGemma, false},
                                        {"alpaca", kAlpaca, true}};

}  // namespace

const BuiltInProgram* FindBuiltInProgram(std::string_view name) {
  for (const BuiltInProgram& program : kPrograms) {
    if (program.name == name) return &program;
  }
  return nullptr;
}

}  // namespace megatrain
