#include "engine/data/chat_template_text.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/text_map.h"

namespace megatrain {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

absl::Status Unknown(std::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("the model's chat_template is not one that is known (", ToAbsl(why),
                   "); name one with data.chat_template: chatml, llama3, alpaca"));
}

// Jinja programs write a newline inside a string as \n, and quote strings with ' or ". All white
// space between tokens is dropped, and " becomes ', so that formatting does not matter; white space
// inside strings is dropped too, so this form serves for recognising only.
std::string Squeeze(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') continue;
    out.push_back(c == '"' ? '\'' : c);
  }
  return out;
}

// The literal that follows `opening` up to `closing`, if it is plain text: no quote, brace or
// backslash in it.
std::string PlainLiteral(std::string_view text, std::string_view opening,
                         std::string_view closing) {
  for (size_t at = text.find(opening); at != std::string_view::npos;
       at = text.find(opening, at + 1)) {
    const size_t begin = at + opening.size();
    const size_t end = text.find(closing, begin);
    if (end == std::string_view::npos) break;
    const std::string_view literal = text.substr(begin, end - begin);
    if (!literal.empty() && literal.find_first_of("'\"{}\\\n") == std::string_view::npos) {
      return std::string(literal);
    }
  }
  return "";
}

absl::Status RefuseParts(std::string_view squeezed, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (Has(squeezed, part)) return Unknown(absl::StrCat("it has \"", part, "\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatVariant> RecogniseChatml(std::string_view text, const std::string& squeezed) {
  ChatVariant variant;
  variant.format = ChatFormat::kChatml;
  MT_RETURN_IF_ERROR(RefuseParts(squeezed, {"bos_token", "eos_token", "|trim", ".strip()",
                                            "raise_exception", "strftime_now", "<|im_sep|>"}));
  // A turn's text is written from its role and content as they are.
  const bool turn = Has(squeezed, "'<|im_start|>'+message.role+'\\n'+") ||
                    Has(squeezed, "'<|im_start|>'+message['role']+'\\n'+");
  const bool end = Has(squeezed, "'<|im_end|>'+'\\n'") || Has(squeezed, "'<|im_end|>\\n'") ||
                   Has(squeezed, "+'<|im_end|>\\n'");
  if (!turn || !end) return Unknown("its turns are not written as chatml's");
  if (Has(squeezed, "<|im_start|>assistant") && !Has(squeezed, "add_generation_prompt")) {
    return Unknown("it always ends with a generation prompt");
  }
  variant.default_system = PlainLiteral(text, "<|im_start|>system\\n", "<|im_end|>");
  if (Has(squeezed, "reasoning_content") || Has(squeezed, "</think>'in")) {
    // Qwen3's, in either of its forms.
    const bool known =
        Has(squeezed,
            "'\\n<think>\\n'+reasoning_content.strip('\\n')+'\\n</think>\\n\\n'+"
            "content.lstrip('\\n')") &&
        Has(squeezed, "ifloop.lastor(notloop.lastandreasoning_content)") &&
        Has(squeezed, "ifloop.index0>ns.last_query_index") &&
        Has(squeezed, ".split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')") &&
        Has(squeezed, ".split('</think>')[-1].lstrip('\\n')");
    if (!known) return Unknown("its reasoning is not written as Qwen3's");
    variant.think = true;
    variant.tool_response_wraps = Has(squeezed, "startswith('<tool_response>')");
  } else if (Has(squeezed, "split(")) {
    return Unknown("it takes messages apart");
  }
  return variant;
}

absl::StatusOr<ChatVariant> RecogniseLlama3(std::string_view text, const std::string& squeezed) {
  ChatVariant variant;
  variant.format = ChatFormat::kLlama3;
  if (!Has(squeezed,
           "'<|start_header_id|>'+message['role']+'<|end_header_id|>\\n\\n'+"
           "message['content']|trim+'<|eot_id|>'")) {
    return Unknown("its turns are not written as Llama 3's");
  }
  if (!Has(squeezed, "bos_token")) return Unknown("it has no bos_token, which Llama 3's has");
  if (Has(squeezed, "<|start_header_id|>assistant") && !Has(squeezed, "add_generation_prompt")) {
    return Unknown("it always ends with a generation prompt");
  }
  if (Has(squeezed, "'CuttingKnowledgeDate:December2023\\n'") &&
      Has(squeezed, "'TodayDate:'+date_string+'\\n\\n'")) {
    // Templates that would take the day's date (Llama 3.2) name the one to fall back on: the text a
    // model is trained on does not depend on the day it is read.
    variant.date = PlainLiteral(text, "set date_string = \"", "\"");
    if (variant.date.empty()) return Unknown("its date is not written as Llama 3.1's");
  } else if (Has(squeezed, "Date")) {
    return Unknown("it has a date that is not Llama 3.1's");
  }
  return variant;
}

}  // namespace

absl::StatusOr<ChatVariant> RecogniseChatTemplate(std::string_view text) {
  const std::string squeezed = Squeeze(text);
  if (Has(squeezed, "<|im_start|>")) return RecogniseChatml(text, squeezed);
  if (Has(squeezed, "<|start_header_id|>")) return RecogniseLlama3(text, squeezed);
  if (Has(squeezed, "[INST]")) return Unknown("mistral's is not supported yet");
  if (Has(squeezed, "<start_of_turn>")) return Unknown("gemma's is not supported yet");
  return Unknown("none of its markers is");
}

}  // namespace megatrain
