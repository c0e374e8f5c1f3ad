#include "engine/chat/chat_template_text.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja_parts.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

absl::Status Unknown(std::string_view why) {
  return absl::UnimplementedError(
      absl::StrCat("the model's chat_template is not one that is known (", ToAbsl(why),
                   "); name one with data.chat_template: ", kChatTemplateNames));
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

// Gemma's and Mistral's programs are read part by part, and each part has to be one that is known.

// The check of the roles at the beginning of a loop over the messages.
bool TakeAlternation(JinjaParts* program, std::string_view index) {
  return program->Take(absl::StrCat("{%if(message.role=='user')!=(", ToAbsl(index), "%2==0)%}")) &&
         program->TakeRaise() && program->Take("{%endif%}");
}

bool ReadGemma(JinjaParts* program, ChatVariant* variant) {
  variant->bos = program->Take("{{bos_token}}");
  if (!program->Take("{%if messages[0].role=='system'%}")) return false;
  std::string list = "messages";
  if (!program->TakeRaise()) {  // Gemma 3
    variant->system = SystemPlace::kFirstUser;
    list = "loop_messages";
    const bool known =
        program->TakeAll({"{%if messages[0].content is string%}",
                          "{%set first_user_prefix=messages[0].content+'\\n\\n'%}", "{%else%}"}) &&
        program->SkipBranch() &&
        program->TakeAll({"{%endif%}", "{%set loop_messages=messages[1:]%}", "{%else%}",
                          "{%set first_user_prefix=''%}", "{%set loop_messages=messages%}"});
    if (!known) return false;
  }
  if (!program->TakeAll({"{%endif%}", absl::StrCat("{%for message in ", list, "%}")}) ||
      !TakeAlternation(program, "loop.index0") ||
      !program->TakeAll({"{%if(message.role=='assistant')%}", "{%set role='model'%}", "{%else%}",
                         "{%set role=message.role%}", "{%endif%}"})) {
    return false;
  }
  if (variant->system == SystemPlace::kRefused) {
    if (!program->Take(
            "{{'<start_of_turn>'+role+'\\n'+message.content|trim+'<end_of_turn>\\n'}}")) {
      return false;
    }
  } else if (!program->TakeAll(
                 {"{{'<start_of_turn>'+role+'\\n'+(first_user_prefix if loop.first else '')}}",
                  "{%if message.content is string%}", "{{message.content|trim}}",
                  "{%elif message.content is iterable%}"}) ||
             !program->SkipBranch() || !program->Take("{%else%}") || !program->TakeRaise() ||
             !program->TakeAll({"{%endif%}", "{{'<end_of_turn>\\n'}}"})) {
    return false;
  }
  return program->TakeAll({"{%endfor%}", "{%if add_generation_prompt%}",
                           "{{'<start_of_turn>model\\n'}}", "{%endif%}"}) &&
         program->done();
}

// The part of a Mistral program before its turns.
struct MistralHead {
  std::string list = "messages";  // what the loop over the turns is over
  bool lists_users = false;       // user_messages is set
  bool checked = true;            // the roles are checked here, not in that loop
};

bool ReadMistralHead(JinjaParts* program, MistralHead* head) {
  if (program->Take("{%if messages[0].role=='system'%}")) {
    head->list = "loop_messages";
    if (!program->TakeAll({"{%set system_message=messages[0].content%}",
                           "{%set loop_messages=messages[1:]%}", "{%else%}",
                           "{%set loop_messages=messages%}", "{%endif%}"})) {
      return false;
    }
  }
  if (program->Take("{%if not tools is defined%}") &&
      !program->TakeAll({"{%set tools=none%}", "{%endif%}"})) {
    return false;
  }
  head->lists_users = program->Take(absl::StrCat("{%set user_messages=", head->list,
                                                 "|selectattr('role','equalto','user')|list%}"));
  if (program->Take("{%set ns=namespace()%}")) {
    if (!program->TakeAll(
            {"{%set ns.index=0%}", absl::StrCat("{%for message in ", head->list, "%}"),
             "{%if not(message.role=='tool' or message.role=='tool_results' or"
             "(message.tool_calls is defined and message.tool_calls is not none))%}"}) ||
        !TakeAlternation(program, "ns.index") ||
        !program->TakeAll({"{%set ns.index=ns.index+1%}", "{%endif%}", "{%endfor%}"})) {
      return false;
    }
  } else if (program->Take(absl::StrCat("{%for message in ", head->list,
                                        "|rejectattr('role','equalto','tool')"
                                        "|rejectattr('role','equalto','tool_results')"
                                        "|selectattr('tool_calls','undefined')%}"))) {
    if (!TakeAlternation(program, "loop.index0") || !program->Take("{%endfor%}")) return false;
  } else {
    head->checked = false;
  }
  return program->TakeAll({"{{bos_token}}", absl::StrCat("{%for message in ", head->list, "%}")});
}

bool TakeMistralUser(JinjaParts* program, ChatVariant* variant) {
  const auto take = [&](std::string_view text) {
    return program->Take(absl::StrCat("{{'", variant->user_open, "'+", ToAbsl(text), "+'",
                                      variant->user_close, "'}}"));
  };
  for (const char* open : {"[INST] ", "[INST]", " [INST] "}) {
    for (const char* close : {"[/INST]", " [/INST]"}) {
      variant->user_open = open;
      variant->user_close = close;
      if (variant->system == SystemPlace::kRefused) {
        if (take("message.content")) return true;
      } else if (take("system_message+'\\n\\n'+message.content")) {
        return program->Take("{%else%}") && take("message.content") && program->Take("{%endif%}");
      }
    }
  }
  return false;
}

bool TakeMistralAssistant(JinjaParts* program, ChatVariant* variant) {
  for (const bool trim : {false, true}) {
    for (const char* open : {"", " "}) {
      for (const char* before : {"", " "}) {
        for (const char* after : {"", " "}) {
          const std::string part =
              absl::StrCat("{{", *open ? "' '+" : "", "message.content", trim ? "|trim" : "",
                           *before ? "+' '" : "", "+eos_token", *after ? "+' '" : "", "}}");
          if (!program->Take(part)) continue;
          variant->trim_assistant = trim;
          variant->assistant_open = open;
          variant->before_eos = before;
          variant->after_eos = after;
          return true;
        }
      }
    }
  }
  return false;
}

bool ReadMistral(JinjaParts* program, ChatVariant* variant) {
  MistralHead head;
  if (!ReadMistralHead(program, &head)) return false;
  if (!head.checked && !TakeAlternation(program, "loop.index0")) return false;
  if (!program->Take("{%if message.role=='user'%}")) return false;
  // The branch for tools is not reached, because there are neither tools nor calls of them.
  if (program->Take("{%if tools is not none and(message==user_messages[-1])%}") &&
      !(program->SkipBranch() && program->Take("{%endif%}"))) {
    return false;
  }
  if (head.list == "loop_messages") {
    if (program->Take("{%if loop.first and system_message is defined%}")) {
      variant->system = SystemPlace::kFirstUser;
    } else if (program->Take("{%if loop.last and system_message is defined%}")) {
      variant->system = SystemPlace::kEndingUser;
    } else if (head.lists_users &&
               program->Take("{%if(message==user_messages[-1]) and system_message is defined%}")) {
      variant->system = SystemPlace::kEqualsLastUser;
    } else {
      return false;
    }
  }
  if (!TakeMistralUser(program, variant)) return false;
  for (const char* calls :
       {"{%elif message.tool_calls is defined and message.tool_calls is not none%}",
        "{%elif(message.tool_calls is defined and message.tool_calls is not none)%}",
        "{%elif message.role=='tool_calls' or message.tool_calls is defined%}"}) {
    if (program->Take(calls) && !program->SkipBranch()) return false;
  }
  if (!program->Take("{%elif message.role=='assistant'%}") ||
      !TakeMistralAssistant(program, variant)) {
    return false;
  }
  if (program->Take("{%elif message.role=='tool_results' or message.role=='tool'%}") &&
      !program->SkipBranch()) {
    return false;
  }
  return program->Take("{%else%}") && program->TakeRaise() &&
         program->TakeAll({"{%endif%}", "{%endfor%}"}) && program->done();
}

absl::StatusOr<ChatVariant> RecogniseByParts(JinjaParts program, ChatFormat format,
                                             bool (*read)(JinjaParts*, ChatVariant*),
                                             std::string_view known) {
  ChatVariant variant;
  variant.format = format;
  if (read(&program, &variant)) return variant;
  const std::string_view part = program.next();
  return Unknown(absl::StrCat("of its family there are ", ToAbsl(known), ", which have no \"",
                              ToAbsl(part.empty() ? "end" : part.substr(0, 80)), "\" there"));
}

}  // namespace

ChatVariant PlainMistral() {
  ChatVariant variant;
  variant.format = ChatFormat::kMistral;
  variant.system = SystemPlace::kEndingUser;
  variant.assistant_open = " ";
  variant.trim_assistant = true;
  return variant;
}

absl::StatusOr<ChatVariant> RecogniseChatTemplate(std::string_view text) {
  absl::StatusOr<JinjaParts> parts = JinjaParts::Parse(text);
  if (!parts.ok()) return Unknown(std::string(parts.status().message()));
  const std::string squeezed = Squeeze(text);
  const bool chatml = Has(squeezed, "<|im_start|>");
  if (chatml || Has(squeezed, "<|start_header_id|>")) {
    // Mostly line feeds of a program that was laid out for reading.
    if (parts->writes_text()) return Unknown("it writes text outside of its tags");
    return chatml ? RecogniseChatml(text, squeezed) : RecogniseLlama3(text, squeezed);
  }
  if (Has(squeezed, "<<SYS>>")) return Unknown("Llama 2's is not");
  if (Has(squeezed, "[SYSTEM_PROMPT]")) {
    return Unknown(
        "Mistral's with [SYSTEM_PROMPT], which has a default text with the day's date, is not");
  }
  if (Has(squeezed, "[INST]")) {
    return RecogniseByParts(*std::move(parts), ChatFormat::kMistral, ReadMistral,
                            "Mistral Instruct v0.1, v0.2, v0.3 and Nemo's");
  }
  if (Has(squeezed, "<start_of_turn>")) {
    return RecogniseByParts(*std::move(parts), ChatFormat::kGemma, ReadGemma, "Gemma 1, 2 and 3's");
  }
  return Unknown("none of its markers is");
}

}  // namespace megatrain
