#include "engine/chat/chat_template.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/model_directory_file.h"
#include "engine/base/status.h"
#include "engine/chat/chat_renderers.h"
#include "engine/chat/chat_template_text.h"
#include "engine/tokenizer/tokenizer_config.h"

namespace megatrain {
namespace {

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
  } else if (name == "mistral") {
    named = PlainMistral();
  } else if (name == "gemma") {
    named.format = ChatFormat::kGemma;
  } else if (name != "chatml" && name != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "chat_template \"", name, "\" is not known; these are: auto, ", kChatTemplateNames));
  }
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> program, ReadProgram(directory, files));
  if (!program.has_value()) {
    if (name != "auto") return named;
    return absl::NotFoundError(absl::StrCat(
        directory,
        " has no chat_template (chat_template.jinja, or in tokenizer_config.json): name one with "
        "data.chat_template: ",
        kChatTemplateNames));
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
  const std::string bos = TokenText(tokenizer, tokenizer.bos_id());
  const std::string eos = TokenText(tokenizer, tokenizer.eos_id());
  switch (variant.format) {
    case ChatFormat::kChatml:
      return MakeChatmlTemplate(std::move(variant));
    case ChatFormat::kLlama3:
      return MakeLlama3Template(std::move(variant), bos);
    case ChatFormat::kGemma:
      return MakeGemmaTemplate(std::move(variant), bos);
    case ChatFormat::kMistral:
    case ChatFormat::kAlpaca:
      break;
  }
  const bool mistral = variant.format == ChatFormat::kMistral;
  if (tokenizer.eos_id() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", mistral ? "mistral" : "alpaca",
        " template ends a response with the end-of-text token, and tokenizer_config.json names no "
        "eos_token"));
  }
  return mistral ? MakeMistralTemplate(std::move(variant), bos, eos) : MakeAlpacaTemplate(eos);
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
