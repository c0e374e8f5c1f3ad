// chatml, until the real templates are in the tree.
#include "absl/strings/str_cat.h"
#include "engine/data/chat_template.h"
namespace megatrain {
namespace {
class Fake : public ChatTemplate {
 public:
  absl::StatusOr<Rendered> RenderText(absl::Span<const ChatMessage> messages) const override {
    Rendered r;
    for (const ChatMessage& m : messages) {
      if (m.role != "user" && m.role != "assistant" && m.role != "system")
        return absl::InvalidArgumentError("message 0: unknown role " + m.role);
      r.text += "<|im_start|>" + m.role + "\n";
      size_t b = r.text.size();
      r.text += m.content + "<|im_end|>";
      if (m.role == "assistant") r.target.emplace_back(b, r.text.size());
      r.text += "\n";
    }
    return r;
  }
  std::string fingerprint() const override { return "fake"; }
};
}  // namespace
absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(const std::string& name,
                                                                   const std::string&,
                                                                   const Tokenizer&) {
  if (name != "chatml") return absl::InvalidArgumentError("unknown template " + name);
  return std::unique_ptr<ChatTemplate>(new Fake);
}
absl::Status ChatTemplate::Render(absl::Span<const ChatMessage> messages,
                                  const Tokenizer& tokenizer, std::vector<int32_t>* ids,
                                  std::vector<uint8_t>* target) const {
  auto r = RenderText(messages);
  if (!r.ok()) return r.status();
  auto s = tokenizer.Encode(r->text, ids);
  if (!s.ok()) return s;
  target->assign(ids->size(), 0);
  for (auto [b, e] : r->target)
    for (size_t i = b; i < e; ++i) (*target)[i] = 1;
  return absl::OkStatus();
}
}  // namespace megatrain
