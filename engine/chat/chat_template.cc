#include "engine/chat/chat_template.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/directories/model_directory_file.h"
#include "engine/base/status.h"
#include "engine/chat/built_in_programs.h"
#include "engine/chat/target_tokens.h"
#include "engine/chat/template_files.h"

namespace megatrain {
namespace {

constexpr char kDefault[] = "default";
constexpr char kToolUse[] = "tool_use";

// A change of how conversations become text and ranges changes this.
constexpr char kVersion[] = "chat-v5";

absl::StatusOr<std::string> ReadProgramFile(const std::string& path, FileSystem* files) {
  const std::filesystem::path name(path);
  MT_ASSIGN_OR_RETURN(
      std::optional<std::string> text,
      ReadModelDirectoryFile(name.parent_path().string(), name.filename().string(), files));
  if (text.has_value()) return *std::move(text);
  return absl::NotFoundError(absl::StrCat("data.chat_template: ", path, ": there is no such file"));
}

absl::Status NoProgram(const std::string& directory,
                       const std::map<std::string, ChatProgramText>& programs) {
  if (programs.empty()) {
    return absl::NotFoundError(absl::StrCat(
        directory,
        " has no chat template (chat_template.jinja, or in tokenizer_config.json): name one with "
        "data.chat_template: ",
        kChatTemplateNames, ", or the path of a .jinja file"));
  }
  std::string names;
  for (const auto& [name, program] : programs) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", name.substr(0, 80));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(directory, " has several chat templates (", names,
                   ") and none of them is \"default\" or "
                   "\"tool_use\": name one with data.chat_template, as the path of a .jinja file"));
}

}  // namespace

absl::Status ChatTemplate::AddProgram(const std::string& name, const std::string& text,
                                      const std::string& file) {
  absl::StatusOr<JinjaProgram> program = JinjaProgram::Parse(text);
  if (!program.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is not a chat template: ", program.status().message()));
  }
  programs_.insert_or_assign(name, *std::move(program));
  absl::StrAppend(&fingerprint_, " ", name, "=", HashBytes(text));
  return absl::OkStatus();
}

absl::Status ChatTemplate::AddPrograms(const Tokenizer& tokenizer) {
  const std::string& name = options_.name;
  if (name == "auto") {
    const std::string& directory = options_.model_directory;
    MT_ASSIGN_OR_RETURN(const auto programs, ReadChatPrograms(directory, options_.files));
    for (const char* key : {kDefault, kToolUse}) {
      const auto found = programs.find(key);
      if (found == programs.end()) continue;
      MT_RETURN_IF_ERROR(AddProgram(key, found->second.text, found->second.file));
    }
    return programs_.empty() ? NoProgram(directory, programs) : absl::OkStatus();
  }
  if (absl::EndsWith(name, ".jinja")) {
    MT_ASSIGN_OR_RETURN(own_program_, ReadProgramFile(name, options_.files));
    return AddProgram(kDefault, own_program_, name);
  }
  const BuiltInProgram* const program = FindBuiltInProgram(name);
  if (program == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat_template \"", name, "\" is not known; these are: auto, ",
                     kChatTemplateNames, ", the path of a .jinja file"));
  }
  if (program->needs_eos && tokenizer.eos_id() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", name,
        " template ends a response with the end-of-text token, and tokenizer_config.json names no "
        "eos_token"));
  }
  own_program_ = program->text;
  return AddProgram(kDefault, own_program_, name);
}

absl::Status ChatTemplate::AddSpecialTokens(const Tokenizer& tokenizer) {
  std::map<std::string, std::string> tokens;
  if (!options_.model_directory.empty()) {
    MT_ASSIGN_OR_RETURN(tokens, ReadSpecialTokens(options_.model_directory, options_.files));
  }
  // The tokenizer may be another than the directory's.
  for (const auto& [name, id] :
       {std::pair{"bos_token", tokenizer.bos_id()}, std::pair{"eos_token", tokenizer.eos_id()},
        std::pair{"pad_token", tokenizer.pad_id()}}) {
    if (id >= 0) tokens[name] = tokenizer.TokenText(id);
  }
  for (const auto& [name, text] : tokens) {
    const bool read =
        std::any_of(programs_.begin(), programs_.end(),
                    [&name = name](const auto& p) { return p.second.mentions(name); });
    if (!read) continue;
    special_tokens_.emplace_back(name, JinjaValue::String(text));
    absl::StrAppend(&fingerprint_, " ", name, "=", text);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(
    const ChatTemplateOptions& options, const Tokenizer& tokenizer) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate(options));
  chat->fingerprint_ = kVersion;
  MT_RETURN_IF_ERROR(chat->AddPrograms(tokenizer));
  MT_RETURN_IF_ERROR(chat->AddSpecialTokens(tokenizer));
  if (chat->uses_day()) {
    absl::StrAppend(&chat->fingerprint_, " day=", absl::FormatCivilTime(options.day));
  }
  absl::StrAppend(&chat->fingerprint_, " on=", static_cast<int>(options.train_on));
  return chat;
}

bool ChatTemplate::uses_day() const {
  return std::any_of(programs_.begin(), programs_.end(),
                     [](const auto& program) { return program.second.uses_clock(); });
}

absl::StatusOr<const JinjaProgram*> ChatTemplate::Choose(const Conversation& conversation) const {
  auto found = programs_.end();
  if (!conversation.tools.is_none()) found = programs_.find(kToolUse);
  if (found == programs_.end()) found = programs_.find(kDefault);
  if (found == programs_.end()) {
    return absl::InvalidArgumentError(
        "the record has no tools, and the model's only chat template is \"tool_use\"");
  }
  return &found->second;
}

absl::StatusOr<RenderedChat> ChatTemplate::RenderText(const Conversation& conversation) const {
  MT_ASSIGN_OR_RETURN(const JinjaProgram* const program, Choose(conversation));
  return RenderChat(*program, special_tokens_, options_.day, options_.train_on, conversation);
}

absl::StatusOr<std::string> ChatTemplate::RenderPrompt(const Conversation& conversation) const {
  MT_ASSIGN_OR_RETURN(const JinjaProgram* const program, Choose(conversation));
  return RenderChatPrompt(*program, special_tokens_, options_.day, conversation);
}

absl::Status ChatTemplate::Render(const Conversation& conversation, const Tokenizer& tokenizer,
                                  std::vector<int32_t>* ids, std::vector<uint8_t>* target,
                                  int64_t* turns_without_loss) const {
  MT_ASSIGN_OR_RETURN(const RenderedChat rendered, RenderText(conversation));
  *turns_without_loss += rendered.turns_without_loss;
  const size_t first = ids->size();
  std::vector<size_t> offsets;
  MT_RETURN_IF_ERROR(tokenizer.EncodeWithOffsets(rendered.text, ids, &offsets));
  AppendTargets(offsets, rendered.text.size(), rendered.target_ranges, target);
  if (ids->size() - first != offsets.size()) {
    return absl::InternalError("the tokenizer gave another number of offsets than ids");
  }
  return absl::OkStatus();
}

}  // namespace megatrain
