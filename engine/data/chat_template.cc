#include "engine/data/chat_template.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/data/chat_template_text.h"
#include "engine/data/model_directory_file.h"
#include "engine/data/text_map.h"
#include "engine/data/tokenizer_config.h"
#include "engine/data/utf8.h"

namespace megatrain {
namespace {

absl::Status CheckMessages(absl::Span<const ChatMessage> messages) {
  if (messages.empty()) return absl::InvalidArgumentError("a conversation without messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "messages[%d]: role \"%s\" is none of system, user, assistant", i, message.role));
    }
    const absl::Status status = CheckUtf8(message.content);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "].content: ", status.message()));
    }
  }
  return absl::OkStatus();
}

std::string_view StripNewlines(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && text.front() == '\n') text.remove_prefix(1);
  while (right && !text.empty() && text.back() == '\n') text.remove_suffix(1);
  return text;
}

// Python's str.strip(), which Jinja's trim is: White_Space and the separators U+001C to U+001F.
std::string_view PythonStrip(std::string_view text) {
  const auto is_space = [](char32_t c) { return IsWhiteSpace(c) || (c >= 0x1c && c <= 0x1f); };
  while (!text.empty() && is_space(Utf8At(text, 0))) {
    text.remove_prefix(Utf8Length(static_cast<unsigned char>(text[0])));
  }
  while (!text.empty()) {
    const size_t last = Utf8Before(text, text.size());
    if (!is_space(Utf8At(text, last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

// <|im_start|>role\ncontent<|im_end|>\n for each message.
class ChatmlTemplate : public ChatTemplate {
 public:
  explicit ChatmlTemplate(ChatVariant variant) : variant_(std::move(variant)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    Rendered out;
    if (!variant_.default_system.empty() && messages[0].role != "system") {
      absl::StrAppend(&out.text, "<|im_start|>system\n", variant_.default_system, "<|im_end|>\n");
    }
    const size_t last_query = LastQuery(messages);
    for (size_t i = 0; i < messages.size(); ++i) {
      const ChatMessage& message = messages[i];
      absl::StrAppend(&out.text, "<|im_start|>", message.role, "\n");
      const size_t begin = out.text.size();
      if (message.role == "assistant" && variant_.think) {
        AppendReasoned(message.content, i > last_query, i + 1 == messages.size(), &out.text);
      } else {
        out.text += message.content;
      }
      out.text += "<|im_end|>";
      if (message.role == "assistant") out.target.emplace_back(begin, out.text.size());
      out.text += "\n";
    }
    return out;
  }

  std::string fingerprint() const override {
    return absl::StrCat("chatml-v1 think=", variant_.think, variant_.tool_response_wraps,
                        " system=", variant_.default_system);
  }

 private:
  // The last user's message that is not a tool's response; the last message if there is none.
  size_t LastQuery(absl::Span<const ChatMessage> messages) const {
    for (size_t i = messages.size(); i-- > 0;) {
      if (messages[i].role == "user" && !IsToolResponse(messages[i].content)) return i;
    }
    return messages.size() - 1;
  }

  bool IsToolResponse(std::string_view text) const {
    constexpr std::string_view kOpen = "<tool_response>";
    constexpr std::string_view kClose = "</tool_response>";
    if (variant_.tool_response_wraps) {
      return text.substr(0, kOpen.size()) == kOpen && text.size() >= kClose.size() &&
             text.substr(text.size() - kClose.size()) == kClose;
    }
    return text.find(kOpen) != std::string_view::npos &&
           text.find(kClose) != std::string_view::npos;
  }

  static void AppendReasoned(std::string_view content, bool after_query, bool is_last,
                             std::string* text) {
    constexpr std::string_view kOpen = "<think>";
    constexpr std::string_view kClose = "</think>";
    std::string_view reasoning;
    if (const size_t first = content.find(kClose); first != std::string_view::npos) {
      reasoning = StripNewlines(content.substr(0, first), false, true);
      if (const size_t open = reasoning.rfind(kOpen); open != std::string_view::npos) {
        reasoning.remove_prefix(open + kOpen.size());
      }
      reasoning = StripNewlines(reasoning, true, false);
      content.remove_prefix(content.rfind(kClose) + kClose.size());
      content = StripNewlines(content, true, false);
    }
    if (after_query && (is_last || !reasoning.empty())) {
      absl::StrAppend(text, "<think>\n", ToAbsl(StripNewlines(reasoning, true, true)),
                      "\n</think>\n\n", ToAbsl(StripNewlines(content, true, false)));
    } else {
      *text += content;
    }
  }

  const ChatVariant variant_;
};

// <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> for each message, bos before all.
class Llama3Template : public ChatTemplate {
 public:
  Llama3Template(ChatVariant variant, std::string bos)
      : variant_(std::move(variant)), bos_(std::move(bos)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    Rendered out;
    out.text = bos_;
    if (!variant_.date.empty()) {
      // Llama 3.1: the system turn is always there, with two dates; it takes the first message's.
      std::string_view system;
      if (messages[0].role == "system") {
        system = messages[0].content;
        messages.remove_prefix(1);
      }
      AppendHeader("system", &out.text);
      absl::StrAppend(&out.text,
                      "Cutting Knowledge Date: December 2023\nToday Date: ", variant_.date, "\n\n",
                      ToAbsl(PythonStrip(system)), "<|eot_id|>");
    }
    for (const ChatMessage& message : messages) {
      AppendHeader(message.role, &out.text);
      const size_t begin = out.text.size();
      absl::StrAppend(&out.text, ToAbsl(PythonStrip(message.content)), "<|eot_id|>");
      if (message.role == "assistant") out.target.emplace_back(begin, out.text.size());
    }
    return out;
  }

  std::string fingerprint() const override {
    return absl::StrCat("llama3-v1 bos=", bos_, " date=", variant_.date);
  }

 private:
  static void AppendHeader(const std::string& role, std::string* text) {
    absl::StrAppend(text, "<|start_header_id|>", role, "<|end_header_id|>\n\n");
  }

  const ChatVariant variant_;
  const std::string bos_;
};

// Stanford Alpaca's prompt, the response right behind it, and the end-of-text token.
class AlpacaTemplate : public ChatTemplate {
 public:
  explicit AlpacaTemplate(std::string eos) : eos_(std::move(eos)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    if (messages.size() != 2 || messages[0].role != "user" || messages[1].role != "assistant") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the alpaca template takes one user's message and the assistant's answer to it, not this "
          "conversation of %d (use chatml or llama3)",
          messages.size()));
    }
    const ChatMessage& user = messages[0];
    Rendered out;
    if (user.input_begin > 0 && user.input_begin <= user.content.size()) {
      const std::string_view content = user.content;
      absl::StrAppend(
          &out.text,
          "Below is an instruction that describes a task, paired with an input that provides "
          "further context. Write a response that appropriately completes the request.\n\n"
          "### Instruction:\n",
          ToAbsl(content.substr(0, user.input_begin - 1)), "\n\n### Input:\n",
          ToAbsl(content.substr(user.input_begin)), "\n\n### Response:");
    } else {
      absl::StrAppend(&out.text,
                      "Below is an instruction that describes a task. Write a response that "
                      "appropriately completes the request.\n\n### Instruction:\n",
                      user.content, "\n\n### Response:");
    }
    const size_t begin = out.text.size();
    absl::StrAppend(&out.text, messages[1].content, eos_);
    out.target.emplace_back(begin, out.text.size());
    return out;
  }

  std::string fingerprint() const override { return absl::StrCat("alpaca-v1 eos=", eos_); }

 private:
  const std::string eos_;
};

// The Jinja program of the model's directory, if it has one.
absl::StatusOr<std::optional<std::string>> ReadProgram(const std::string& directory,
                                                       FileSystem* files) {
  MT_ASSIGN_OR_RETURN(std::optional<std::string> file,
                      ReadModelDirectoryFile(directory, "chat_template.jinja", files));
  if (file.has_value()) return file;
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> config,
                      ReadModelDirectoryFile(directory, "tokenizer_config.json", files));
  absl::StatusOr<TokenizerConfig> parsed = ParseTokenizerConfig(config.value_or(""), "");
  if (!parsed.ok()) {
    return absl::Status(parsed.status().code(),
                        absl::StrCat(directory, "/", parsed.status().message()));
  }
  return std::move(parsed->chat_template);
}

// The variant that `name` means in this directory: a family's own variant where the directory has
// one, else the plain one.
absl::StatusOr<ChatVariant> ChooseVariant(const std::string& name, const std::string& directory,
                                          FileSystem* files) {
  ChatVariant named;
  if (name == "alpaca") {
    named.format = ChatFormat::kAlpaca;
    return named;
  }
  if (name == "llama3") {
    named.format = ChatFormat::kLlama3;
  } else if (name == "mistral" || name == "gemma") {
    return absl::UnimplementedError(absl::StrCat(
        "chat_template \"", name, "\" is not supported yet; these are: chatml, llama3, alpaca"));
  } else if (name != "chatml" && name != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "chat_template \"", name, "\" is not known; these are: auto, chatml, llama3, alpaca"));
  }
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> program, ReadProgram(directory, files));
  if (!program.has_value()) {
    if (name != "auto") return named;
    return absl::NotFoundError(absl::StrCat(
        directory,
        " has no chat_template (chat_template.jinja, or in tokenizer_config.json): name one with "
        "data.chat_template: chatml, llama3, alpaca"));
  }
  absl::StatusOr<ChatVariant> own = RecogniseChatTemplate(*program);
  if (own.ok() && (name == "auto" || own->format == named.format)) return own;
  if (name != "auto") return named;
  return absl::Status(own.status().code(), absl::StrCat(directory, ": ", own.status().message()));
}

std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  return id < 0 ? "" : tokenizer.Decode({id}, /*skip_special=*/false);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(
    const std::string& name, const std::string& model_directory, const Tokenizer& tokenizer,
    FileSystem* files) {
  MT_ASSIGN_OR_RETURN(ChatVariant variant, ChooseVariant(name, model_directory, files));
  switch (variant.format) {
    case ChatFormat::kChatml:
      return std::make_unique<ChatmlTemplate>(std::move(variant));
    case ChatFormat::kLlama3:
      return std::make_unique<Llama3Template>(std::move(variant),
                                              TokenText(tokenizer, tokenizer.bos_id()));
    case ChatFormat::kAlpaca:
      break;
  }
  if (tokenizer.eos_id() < 0) {
    return absl::InvalidArgumentError(
        "the alpaca template ends a response with the end-of-text token, and tokenizer_config.json "
        "names no eos_token");
  }
  return std::make_unique<AlpacaTemplate>(TokenText(tokenizer, tokenizer.eos_id()));
}

absl::Status ChatTemplate::Render(absl::Span<const ChatMessage> messages,
                                  const Tokenizer& tokenizer, std::vector<int32_t>* ids,
                                  std::vector<uint8_t>* target) const {
  MT_ASSIGN_OR_RETURN(const Rendered rendered, RenderText(messages));
  const size_t first = ids->size();
  std::vector<size_t> offsets;
  MT_RETURN_IF_ERROR(tokenizer.EncodeWithOffsets(rendered.text, ids, &offsets));
  size_t range = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const size_t begin = offsets[i];
    const size_t end = i + 1 < offsets.size() ? offsets[i + 1] : rendered.text.size();
    while (range < rendered.target.size() && rendered.target[range].second <= begin) ++range;
    // Overlap. A token without characters of its own (several that one character became) belongs
    // where it begins.
    const bool hit =
        range < rendered.target.size() && std::max(end, begin + 1) > rendered.target[range].first;
    target->push_back(hit ? 1 : 0);
  }
  if (ids->size() - first != offsets.size()) {
    return absl::InternalError("the tokenizer gave another number of offsets than ids");
  }
  return absl::OkStatus();
}

}  // namespace megatrain
