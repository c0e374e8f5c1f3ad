#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/chat_renderers.h"
#include "engine/tokenizer/text/text_map.h"

namespace megatrain {
namespace {

// [INST] question[/INST] answer</s> for each pair of turns, bos before all. There is no generation
// prompt: an answer begins right behind [/INST].
class MistralTemplate : public ChatTemplate {
 public:
  MistralTemplate(ChatVariant variant, std::string bos, std::string eos)
      : variant_(std::move(variant)), bos_(std::move(bos)), eos_(std::move(eos)) {}

  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    MT_RETURN_IF_ERROR(CheckMessages(messages));
    const size_t first = messages[0].role == "system" ? 1 : 0;
    if (first > 0 && variant_.system == SystemPlace::kRefused) return SystemRefused("mistral");
    MT_RETURN_IF_ERROR(CheckAlternation(messages, first, "mistral"));
    Rendered out;
    out.text = bos_;
    for (size_t i = first; i < messages.size(); ++i) {
      const std::string_view content = messages[i].content;
      if (messages[i].role == "user") {
        out.text += variant_.user_open;
        if (first > 0 && TakesSystem(messages, i)) {
          absl::StrAppend(&out.text, messages[0].content, "\n\n");
        }
        absl::StrAppend(&out.text, ToAbsl(content), variant_.user_close);
      } else if (messages[i].role == "assistant") {
        const size_t begin = out.text.size();
        absl::StrAppend(&out.text, variant_.assistant_open,
                        ToAbsl(variant_.trim_assistant ? PythonStrip(content) : content),
                        variant_.before_eos, eos_);
        out.target.emplace_back(begin, out.text.size());
        out.text += variant_.after_eos;
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("messages[", i,
                         "]: the mistral template takes a system message only as "
                         "the first message"));
      }
    }
    return out;
  }

  std::string fingerprint() const override {
    return absl::StrCat("mistral-v1 bos=", bos_, " eos=", eos_,
                        " system=", static_cast<int>(variant_.system), " user=", variant_.user_open,
                        "|", variant_.user_close, " assistant=", variant_.assistant_open, "|",
                        variant_.trim_assistant, "|", variant_.before_eos, "|", variant_.after_eos);
  }

 private:
  // Returns true if the first message's system text is put before messages[i], a user's message.
  bool TakesSystem(absl::Span<const ChatMessage> messages, size_t i) const {
    switch (variant_.system) {
      case SystemPlace::kRefused:
        return false;
      case SystemPlace::kFirstUser:
        return i == 1;
      case SystemPlace::kEndingUser:
        return i + 1 == messages.size();
      case SystemPlace::kEqualsLastUser:
        break;
    }
    size_t last = messages.size() - 1;
    while (messages[last].role != "user") --last;
    return messages[i].content == messages[last].content;
  }

  const ChatVariant variant_;
  const std::string bos_;
  const std::string eos_;
};

}  // namespace

std::unique_ptr<ChatTemplate> MakeMistralTemplate(ChatVariant variant, std::string bos,
                                                  std::string eos) {
  return std::make_unique<MistralTemplate>(std::move(variant), std::move(bos), std::move(eos));
}

}  // namespace megatrain
