#include "engine/chat/rendered_chat.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/turn_finder.h"
#include "engine/chat/unread_keys.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

// The steps of the renderings that look for the turns of one conversation: about half a minute.
// Turns that are uncertain take as many again.
constexpr int64_t kSearchStepsMax = 400'000'000;
constexpr size_t kUnknownRolesMax = 16;
constexpr char kMarker[] = "\ue0c4turn\ue0c4";  // characters for private use

// Returns the message as the program sees it.
JinjaValue ValueOf(const ChatMessage& message, bool takes_parts) {
  JinjaValue::Entries entries;
  const JinjaValue* reasoning = nullptr;
  for (const char* key : kReasoningKeys) {
    const JinjaValue* const value = message.Find(key);
    if (value != nullptr && (reasoning == nullptr || reasoning->is_empty())) reasoning = value;
  }
  if (reasoning != nullptr) entries.emplace_back("thinking", *reasoning);
  for (const auto& [key, value] : message.fields) {
    if (reasoning != nullptr && key == "thinking" && value.is_empty()) continue;
    const bool joined = key == "content" && message.in_parts && !takes_parts;
    entries.emplace_back(key, joined ? JinjaValue::String(message.text) : value);
  }
  if (reasoning != nullptr) entries.emplace_back("reasoning_content", *reasoning);
  return JinjaValue::MakeDict(std::move(entries));
}

bool SaysNothing(const ChatMessage& message) {
  return std::all_of(message.fields.begin(), message.fields.end(), [](const auto& field) {
    return field.first == "role" || field.second.is_empty();
  });
}

// One conversation and its program.
class Renderer {
 public:
  Renderer(const JinjaProgram& program, const JinjaVariables& special_tokens, absl::CivilDay day,
           const Conversation& conversation)
      : program_(program), messages_(conversation.messages), variables_(special_tokens) {
    variables_.insert(variables_.end(), conversation.alpaca.begin(), conversation.alpaca.end());
    variables_.insert(variables_.end(), conversation.kwargs.begin(), conversation.kwargs.end());
    variables_.emplace_back("tools", conversation.tools);
    variables_.emplace_back("documents", conversation.documents);
    // A program that reads the text of parts goes through them.
    const bool takes_parts = program.mentions("text");
    for (const ChatMessage& message : messages_) values_.push_back(ValueOf(message, takes_parts));
    options_.now = absl::FromCivil(day, absl::UTCTimeZone());
  }

  absl::StatusOr<RenderedChat> Render(TrainOn train_on);
  absl::StatusOr<std::string> RenderPrompt();

 private:
  // Renders messages with or without the generation prompt.
  absl::StatusOr<JinjaRendered> Run(JinjaValue::List messages, bool prompt) {
    JinjaVariables variables = variables_;
    variables.emplace_back("messages", JinjaValue::MakeList(std::move(messages)));
    variables.emplace_back("add_generation_prompt", JinjaValue::Bool(prompt));
    return program_.Render(variables, options_);
  }
  absl::StatusOr<JinjaRendered> RunFirst(size_t count, bool prompt) {
    return Run({values_.begin(), values_.begin() + static_cast<ptrdiff_t>(count)}, prompt);
  }

  // Returns a rendering that only serves to find turns, or nullopt if the program refuses the
  // messages or fails. Returns the error if it takes too long.
  absl::StatusOr<std::optional<JinjaRendered>> TryFirst(size_t count, bool prompt);
  absl::StatusOr<std::optional<std::string>> FirstPrompt(std::string_view turn);
  absl::StatusOr<std::optional<std::string>> Prompt(size_t index, std::string_view turn);
  absl::StatusOr<std::optional<std::string>> Turn(size_t index);
  absl::StatusOr<std::optional<size_t>> Begin(size_t index, std::string_view prompt,
                                              std::string_view& turn);
  // Renders messages with a text alone, the marker, for one of them.
  absl::StatusOr<std::optional<JinjaRendered>> TryMarked(size_t count, size_t index);
  // Finds a turn that renderings of the conversation as it is leave uncertain.
  absl::StatusOr<std::optional<TextRange>> FindMarked(size_t index, std::string_view prompt);

  // Shares the steps of the search among the renderings for so many turns.
  void LimitSearch(size_t turns) {
    const int64_t share = kSearchStepsMax / (2 * static_cast<int64_t>(turns));
    options_.limits.steps_max = std::min(JinjaLimits().steps_max, share);
  }

  absl::Status RenderWhole(bool prompt);
  // Look at the messages whose rendering is out_.text.
  absl::Status CheckRoles(bool prompt);
  absl::Status CheckReasoning(bool prompt);

  // Returns the {% generation %} blocks of the first messages, or nullopt as TryFirst does.
  absl::StatusOr<std::optional<std::vector<TextRange>>> BlocksOfFirst(size_t count);
  absl::StatusOr<TextRange> BlocksOf(size_t index);
  absl::Status MarkGenerated(const std::vector<size_t>& wanted);
  absl::StatusOr<bool> MarkExact(const std::vector<size_t>& wanted);
  absl::Status MarkFound(const std::vector<size_t>& wanted);

  const JinjaProgram& program_;
  const std::vector<ChatMessage>& messages_;
  JinjaVariables variables_;
  JinjaValue::List values_;  // the messages
  JinjaOptions options_;
  std::vector<size_t> assistants_;  // their indices
  std::vector<TextRange> generated_;
  bool generation_moved_ = false;
  RenderedChat out_;
};

absl::Status AsBadExample(const absl::Status& status) {
  const char* what = "the chat template fails: ";
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    what = "the chat template refuses the conversation: ";
  }
  return absl::InvalidArgumentError(absl::StrCat(what, status.message()));
}

absl::StatusOr<std::optional<JinjaRendered>> Renderer::TryFirst(size_t count, bool prompt) {
  absl::StatusOr<JinjaRendered> rendered = RunFirst(count, prompt);
  if (rendered.ok()) return std::optional<JinjaRendered>(*std::move(rendered));
  if (rendered.status().code() != absl::StatusCode::kResourceExhausted) return std::nullopt;
  return absl::InvalidArgumentError(
      absl::StrCat("finding the assistant's turns takes too long, because every turn is rendered "
                   "anew (",
                   rendered.status().message(), "); cut the conversation of ", messages_.size(),
                   " messages into several"));
}

// Returns what stands before the turn `turn` that begins a conversation, for a program that writes
// other things before it than without any message: up to the first generation prompt, as it follows
// a user's message.
absl::StatusOr<std::optional<std::string>> Renderer::FirstPrompt(std::string_view turn) {
  const JinjaValue::List user = {ValueOf(ChatMessage::Of("user", "x"), false)};
  const absl::StatusOr<JinjaRendered> with = Run(user, true);
  const absl::StatusOr<JinjaRendered> without = Run(user, false);
  if (!with.ok() || !without.ok()) return std::nullopt;
  const size_t size = without->text.size();
  if (with->text.size() <= size || with->text.compare(0, size, without->text) != 0) {
    return std::nullopt;
  }
  const std::string_view prompt = std::string_view(with->text).substr(size);
  const size_t at = turn.find(prompt);
  if (at == std::string_view::npos) return std::nullopt;
  return std::string(turn.substr(0, at + prompt.size()));
}

absl::StatusOr<std::optional<std::string>> Renderer::Prompt(size_t index, std::string_view turn) {
  MT_ASSIGN_OR_RETURN(std::optional<JinjaRendered> prompt, TryFirst(index, true));
  const bool begins = prompt.has_value() && turn.substr(0, prompt->text.size()) == prompt->text;
  if (index == 0 && !begins) return FirstPrompt(turn);
  if (!prompt.has_value()) return std::nullopt;
  return std::move(prompt->text);
}

absl::StatusOr<std::optional<std::string>> Renderer::Turn(size_t index) {
  if (index + 1 == messages_.size()) return out_.text;
  MT_ASSIGN_OR_RETURN(std::optional<JinjaRendered> turn, TryFirst(index + 1, false));
  if (!turn.has_value()) return std::nullopt;
  return std::move(turn->text);
}

absl::StatusOr<std::optional<JinjaRendered>> Renderer::TryMarked(size_t count, size_t index) {
  JinjaValue original = std::exchange(
      values_[index], ValueOf(ChatMessage::Of(messages_[index].role, kMarker), false));
  absl::StatusOr<std::optional<JinjaRendered>> rendered = TryFirst(count, false);
  values_[index] = std::move(original);
  return rendered;
}

// Returns the place where a turn begins in T, as TurnFinder::Begin or BeginMarked tell it.
absl::StatusOr<std::optional<size_t>> Renderer::Begin(size_t index, std::string_view prompt,
                                                      std::string_view& turn) {
  std::optional<size_t> begin = TurnFinder::Begin(prompt, messages_[index].text, turn);
  if (begin.has_value() || out_.text.find(kMarker) != std::string::npos) return begin;
  MT_ASSIGN_OR_RETURN(const auto marked, TryMarked(index + 1, index));
  if (!marked.has_value()) return std::nullopt;
  return TurnFinder::BeginMarked(prompt, turn, marked->text, kMarker);
}

absl::StatusOr<std::optional<TextRange>> Renderer::FindMarked(size_t index,
                                                              std::string_view prompt) {
  const ChatMessage& message = messages_[index];
  // Programs may write tool calls, reasoning or parts around the text.
  if (message.fields.size() != 2 || message.in_parts ||
      out_.text.find(kMarker) != std::string::npos) {
    return std::nullopt;
  }
  MT_ASSIGN_OR_RETURN(const auto whole, TryMarked(messages_.size(), index));
  MT_ASSIGN_OR_RETURN(const auto turn, TryMarked(index + 1, index));
  if (!whole.has_value() || !turn.has_value()) return std::nullopt;
  return TurnFinder::FindMarked(out_.text, prompt, whole->text, turn->text, message.text, kMarker);
}

// Refuses messages that the program passes over because it does not know their role.
absl::Status Renderer::CheckRoles(bool prompt) {
  std::set<std::string_view> seen = {"user", "assistant"};
  const size_t known = seen.size();
  for (size_t i = 0; i < messages_.size(); ++i) {
    const std::string& role = messages_[i].role;
    if (seen.count(role) > 0 || program_.mentions(role) || SaysNothing(messages_[i])) continue;
    seen.insert(role);
    if (seen.size() > known + kUnknownRolesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("the conversation has more than ", kUnknownRolesMax,
                       " roles that the chat template does not name"));
    }
    JinjaValue::List others = values_;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    const absl::StatusOr<JinjaRendered> without = Run(std::move(others), prompt);
    if (without.ok() && without->text == out_.text) {
      return absl::InvalidArgumentError(absl::StrCat(
          "messages[", i, "] has the role \"", role.substr(0, 80),
          "\", which the chat template passes over; remove the message, or give it another role"));
    }
  }
  return absl::OkStatus();
}

// Refuses reasoning of the message that ends the conversation if the program passes over it.
absl::Status Renderer::CheckReasoning(bool prompt) {
  const ChatMessage& last = messages_.back();
  const bool reasons = std::any_of(last.fields.begin(), last.fields.end(), [](const auto& field) {
    // Templates strip it, so that white space alone is none.
    return IsReasoning(field.first) && !field.second.is_empty() &&
           !(field.second.is_string() &&
             absl::StripAsciiWhitespace(ToAbsl(field.second.as_string())).empty());
  });
  if (!reasons || !last.is_assistant()) return absl::OkStatus();
  ChatMessage silent = last;
  std::erase_if(silent.fields, [](const auto& field) { return IsReasoning(field.first); });
  JinjaValue::List messages = values_;
  messages.back() = ValueOf(silent, program_.mentions("text"));
  const absl::StatusOr<JinjaRendered> without = Run(std::move(messages), prompt);
  if (!without.ok() || without->text != out_.text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "messages[", messages_.size() - 1,
      "] has reasoning, which the chat template passes over here; remove it, or choose "
      "another template with data.chat_template"));
}

absl::StatusOr<std::optional<std::vector<TextRange>>> Renderer::BlocksOfFirst(size_t count) {
  std::optional<std::vector<TextRange>> blocks;
  if (count == 0) return blocks.emplace();
  if (count == messages_.size()) return blocks.emplace(generated_);
  MT_ASSIGN_OR_RETURN(std::optional<JinjaRendered> rendered, TryFirst(count, false));
  if (rendered.has_value()) blocks = std::move(rendered->generation);
  return blocks;
}

// Returns the range of generated_ that the turn adds, which is empty if it is uncertain.
absl::StatusOr<TextRange> Renderer::BlocksOf(size_t index) {
  MT_ASSIGN_OR_RETURN(const auto before, BlocksOfFirst(index));
  MT_ASSIGN_OR_RETURN(const auto after, BlocksOfFirst(index + 1));
  if (!before.has_value() || !after.has_value()) return TextRange();
  const TextRange added = {before->size(), std::max(before->size(), after->size())};
  const auto begins = [](const std::vector<TextRange>& start, const std::vector<TextRange>& all) {
    return start.size() <= all.size() && std::equal(start.begin(), start.end(), all.begin());
  };
  if (begins(*before, *after) && begins(*after, generated_)) return added;
  // A turn may be written otherwise when messages follow. Then its block is known only if each turn
  // has one.
  const auto turn = std::find(assistants_.begin(), assistants_.end(), index) - assistants_.begin();
  const bool one_each = generated_.size() == assistants_.size() &&
                        added.first == static_cast<size_t>(turn) && added.second == added.first + 1;
  return one_each ? added : TextRange();
}

// Marks what {% generation %} wrote for the wanted messages.
absl::Status Renderer::MarkGenerated(const std::vector<size_t>& wanted) {
  if (generation_moved_) {
    return absl::InvalidArgumentError(
        "the chat template has {% generation %} within a macro or {% set %}, so that it does not "
        "tell where the assistant's turns are");
  }
  std::vector<TextRange> ranges;
  if (wanted.size() == assistants_.size()) {
    ranges = generated_;
    out_.turns_without_loss = std::max<int64_t>(0, std::ssize(assistants_) - std::ssize(ranges));
  } else {
    LimitSearch(wanted.size());
    for (const size_t index : wanted) {
      MT_ASSIGN_OR_RETURN(const TextRange blocks, BlocksOf(index));
      if (blocks.first == blocks.second) ++out_.turns_without_loss;
      for (size_t i = blocks.first; i < blocks.second; ++i) ranges.push_back(generated_[i]);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (auto [begin, end] : ranges) {
    if (!out_.target_ranges.empty()) begin = std::max(begin, out_.target_ranges.back().second);
    if (begin < end) out_.target_ranges.emplace_back(begin, end);
  }
  return absl::OkStatus();
}

// Marks the wanted turns if each of them is found by itself. Otherwise returns false.
absl::StatusOr<bool> Renderer::MarkExact(const std::vector<size_t>& wanted) {
  LimitSearch(wanted.size());
  std::vector<TextRange> target_ranges;
  for (const size_t index : wanted) {
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> turn, Turn(index));
    if (!turn.has_value()) return false;
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> prompt, Prompt(index, *turn));
    if (!prompt.has_value()) return false;
    const std::optional<TextRange> range =
        TurnFinder::FindExact(out_.text, *prompt, *turn, messages_[index].text);
    if (!range.has_value()) return false;
    if (range->first < range->second) target_ranges.push_back(*range);
  }
  out_.target_ranges = std::move(target_ranges);
  return true;
}

absl::Status Renderer::MarkFound(const std::vector<size_t>& wanted) {
  if (wanted.size() < assistants_.size()) {
    MT_ASSIGN_OR_RETURN(const bool found, MarkExact(wanted));
    if (found) return absl::OkStatus();
  }
  LimitSearch(assistants_.size());
  TurnFinder finder(out_.text);
  size_t found_end = 0;
  for (const size_t index : assistants_) {
    if (index > wanted.back()) break;
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> turn, Turn(index));
    std::optional<std::string> prompt;
    if (turn.has_value()) {
      MT_ASSIGN_OR_RETURN(prompt, Prompt(index, *turn));
    }
    std::string_view turn_text = turn.has_value() ? std::string_view(*turn) : "";
    std::optional<size_t> begin;
    if (prompt.has_value()) {
      MT_ASSIGN_OR_RETURN(begin, Begin(index, *prompt, turn_text));
    }
    std::optional<TextRange> range = finder.Find(begin, turn_text, messages_[index].text);
    if (!range.has_value() && prompt.has_value()) {
      MT_ASSIGN_OR_RETURN(range, FindMarked(index, *prompt));
      // Two turns do not share text.
      if (range.has_value() && range->first < found_end) range.reset();
    }
    if (range.has_value()) found_end = range->second;
    if (!std::binary_search(wanted.begin(), wanted.end(), index)) continue;
    if (range.has_value()) {
      out_.target_ranges.push_back(*range);
    } else {
      ++out_.turns_without_loss;
    }
  }
  return absl::OkStatus();
}

absl::Status Renderer::RenderWhole(bool prompt) {
  absl::StatusOr<JinjaRendered> whole = RunFirst(messages_.size(), prompt);
  if (!whole.ok()) return AsBadExample(whole.status());
  out_.text = std::move(whole->text);
  generated_ = std::move(whole->generation);
  generation_moved_ = whole->generation_moved;
  MT_RETURN_IF_ERROR(CheckReasoning(prompt));
  return CheckRoles(prompt);
}

absl::StatusOr<std::string> Renderer::RenderPrompt() {
  MT_RETURN_IF_ERROR(RenderWhole(/*prompt=*/true));
  return std::move(out_.text);
}

absl::StatusOr<RenderedChat> Renderer::Render(TrainOn train_on) {
  MT_RETURN_IF_ERROR(RenderWhole(/*prompt=*/false));
  std::vector<size_t> wanted;  // messages that the loss is on
  for (size_t i = 0; i < messages_.size(); ++i) {
    if (!messages_[i].is_assistant()) continue;
    assistants_.push_back(i);
    if (train_on == TrainOn::kLast) wanted.clear();
    if (messages_[i].trained) {
      wanted.push_back(i);
    } else if (train_on == TrainOn::kAll) {
      return absl::InvalidArgumentError(absl::StrCat(
          "messages[", i,
          "] has weight 0, but the loss is to be on the whole conversation (data.train_on: all)"));
    }
  }
  if (train_on == TrainOn::kAll) {
    if (!out_.text.empty()) out_.target_ranges = {{0, out_.text.size()}};
  } else if (!wanted.empty()) {
    MT_RETURN_IF_ERROR(program_.has_generation() ? MarkGenerated(wanted) : MarkFound(wanted));
  }
  return std::move(out_);
}

absl::Status Check(const JinjaProgram& program, const Conversation& conversation) {
  if (conversation.messages.empty()) {
    return absl::InvalidArgumentError("a conversation without messages");
  }
  return CheckRead(program, conversation);
}

}  // namespace

absl::StatusOr<RenderedChat> RenderChat(const JinjaProgram& program,
                                        const JinjaVariables& special_tokens, absl::CivilDay day,
                                        TrainOn train_on, const Conversation& conversation) {
  MT_RETURN_IF_ERROR(Check(program, conversation));
  return Renderer(program, special_tokens, day, conversation).Render(train_on);
}

absl::StatusOr<std::string> RenderChatPrompt(const JinjaProgram& program,
                                             const JinjaVariables& special_tokens,
                                             absl::CivilDay day, const Conversation& conversation) {
  MT_RETURN_IF_ERROR(Check(program, conversation));
  return Renderer(program, special_tokens, day, conversation).RenderPrompt();
}

}  // namespace megatrain
