#include "engine/tokenizer/token_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Searching a text takes time in proportion to its length and that of the longest token.
constexpr size_t kTokenBytesMax = 4096;

absl::Status CheckLength(std::string_view token, std::string_view where) {
  if (token.size() <= kTokenBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(where), " has a token of ", token.size(),
                                                 " bytes; at most ", kTokenBytesMax, " are taken"));
}

}  // namespace

void RemoveKnownTokens(const TokenizerJson& parts, bool is_json, TokenizerConfig* config) {
  const auto is_known = [](const std::vector<AddedToken>& tokens, const AddedToken& token,
                           bool id) {
    return std::any_of(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
      return other.content == token.content && (!id || other.id == token.id);
    });
  };
  if (is_json && config->has_older_added_tokens) {
    std::erase_if(config->added_tokens, [&](const AddedToken& token) {
      return is_known(parts.added_tokens, token, /*id=*/true);
    });
  }
  const auto first = config->special_tokens.begin() + static_cast<ptrdiff_t>(config->named_tokens);
  const auto last = first + static_cast<ptrdiff_t>(config->own_tokens);
  const auto kept = std::remove_if(first, last, [&](const AddedToken& token) {
    return is_known(parts.added_tokens, token, /*id=*/false) ||
           is_known(config->added_tokens, token, /*id=*/false);
  });
  config->own_tokens = static_cast<size_t>(kept - first);
  config->special_tokens.erase(kept, last);
}

absl::Status TokenTable::Initialize(const TokenizerJson& parts, std::string_view file,
                                    const TokenizerConfig& config) {
  model_ = parts.model.get();
  special_ids_ = parts.special_ids;
  MT_RETURN_IF_ERROR(Add(parts.added_tokens, false, absl::StrCat(ToAbsl(file), ": added_tokens")));
  MT_RETURN_IF_ERROR(AddAgain(file, config));
  MT_RETURN_IF_ERROR(Add(config.special_tokens, true, "tokenizer_config.json"));
  MT_RETURN_IF_ERROR(Tabulate(parts.normalizer));
  SetSpecials(config);
  return CheckSpecialIds(file);
}

// transformers adds all tokens of added_tokens_decoder that differ from the file's, and their flags
// replace those.
absl::Status TokenTable::AddAgain(std::string_view file, const TokenizerConfig& config) {
  const std::string_view from = config.has_older_added_tokens
                                    ? "added_tokens.json"
                                    : "tokenizer_config.json: added_tokens_decoder";
  // ParseSentencePieceModel may have named some of the four.
  const auto is_named = [&](const std::string& content) {
    const auto first = config.special_tokens.begin();
    const auto last = first + static_cast<ptrdiff_t>(config.named_tokens + config.own_tokens);
    return content == config.bos_token || content == config.eos_token ||
           content == config.unk_token || content == config.pad_token ||
           std::any_of(first, last, [&](const auto& token) { return token.content == content; });
  };
  std::vector<AddedToken> again;
  for (AddedToken token : config.added_tokens) {
    const std::optional<int32_t> id = TokenId(token.content);
    if (id.has_value() && *id != token.id) {
      return absl::InvalidArgumentError(absl::StrFormat("%s gives \"%s\" the id %d, %s %d", from,
                                                        token.content, token.id, file, *id));
    }
    const auto there = added_.find(token.id);
    // A special token stays one.
    token.special = token.special || is_named(token.content) ||
                    (id.has_value() && there != added_.end() && there->second.special);
    if (id.has_value() && there != added_.end()) {
      const AddedToken& known = there->second;
      const bool finds_alike = known.single_word == token.single_word &&
                               known.lstrip == token.lstrip && known.rstrip == token.rstrip &&
                               known.normalized == token.normalized;
      if (finds_alike && known.special == token.special) continue;
      flags_replaced_ = flags_replaced_ || !finds_alike;
    }
    again.push_back(std::move(token));
  }
  return Add(again, false, from);
}

// Ids as `tokenizers` gives them: a token of the model keeps its id, others are numbered from the
// vocabulary's size on. With `any_id`, the tokens' own ids do not count, and a token that is there
// stays as it is.
absl::Status TokenTable::Add(const std::vector<AddedToken>& tokens, bool any_id,
                             std::string_view file) {
  auto next = static_cast<int32_t>(model_->vocabulary().size());
  for (const auto& [id, token] : added_) next = std::max(next, id + 1);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    MT_RETURN_IF_ERROR(CheckLength(token.content, file));
    const std::optional<int32_t> known = TokenId(token.content);
    const int32_t id = known.has_value() ? *known : next++;
    if (any_id && added_.contains(id)) continue;
    if (!any_id && id != token.id) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s gives \"%s\" the id %d, but `tokenizers` numbers it %d", file,
                          token.content, token.id, id));
    }
    AddedToken& added = added_[id] = token;
    added.id = id;
    added_ids_[token.content] = id;
  }
  return absl::OkStatus();
}

void TokenTable::SetSpecials(const TokenizerConfig& config) {
  const auto set = [this](const std::optional<std::string>& text, int32_t* id) {
    if (text.has_value() && !text->empty()) *id = TokenId(*text).value_or(-1);
  };
  set(config.bos_token, &bos_id_);
  set(config.eos_token, &eos_id_);
  set(config.pad_token, &pad_id_);
  for (const int32_t id : config.eos_token_ids) {
    if (id < vocabulary_) end_ids_.push_back(id);
  }
  if (eos_id_ < 0 && config.eos_token_id < vocabulary_) eos_id_ = config.eos_token_id;
  if (eos_id_ >= 0) end_ids_.push_back(eos_id_);
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  // A directory without tokenizer.json says so in tokenizer_config.json.
  if (config.add_bos && bos_id_ >= 0) special_ids_.before = {bos_id_};
  if (config.add_eos && eos_id_ >= 0) special_ids_.after = {eos_id_};
}

absl::Status TokenTable::Tabulate(const Normalizer& normalizer) {
  for (const auto& [token, id] : model_->vocabulary()) {
    vocabulary_ = std::max<int64_t>(vocabulary_, int64_t{id} + 1);
    MT_RETURN_IF_ERROR(CheckLength(token, "the vocabulary"));
    decoded_[id] = {token, false};
  }
  NormalizedText normalized;
  for (const auto& [id, token] : added_) {
    vocabulary_ = std::max<int64_t>(vocabulary_, int64_t{id} + 1);
    normalized.text = token.content;
    if (token.normalized) {
      MT_RETURN_IF_ERROR(normalizer.Normalize(token.content, true, false, &normalized));
      MT_RETURN_IF_ERROR(CheckLength(normalized.text, "an added token, normalized,"));
    }
    // As in `tokenizers`, one that is normalized to another text is not left out.
    decoded_[id] = {std::string(normalized.text),
                    token.special && normalized.text == token.content};
  }
  return absl::OkStatus();
}

absl::Status TokenTable::CheckSpecialIds(std::string_view file) const {
  for (const auto* ids : {&special_ids_.before, &special_ids_.after}) {
    for (const int32_t id : *ids) {
      if (!decoded_.contains(id)) {
        return absl::InvalidArgumentError(absl::StrCat(
            ToAbsl(file), ": post_processor adds the id ", id, ", which no token has"));
      }
    }
  }
  return absl::OkStatus();
}

std::optional<int32_t> TokenTable::TokenId(std::string_view token) const {
  if (const auto found = added_ids_.find(token); found != added_ids_.end()) return found->second;
  const auto found = model_->vocabulary().find(token);
  if (found == model_->vocabulary().end()) return std::nullopt;
  return found->second;
}

const TokenTable::Decoded* TokenTable::Find(int32_t id) const {
  const auto found = decoded_.find(id);
  return found == decoded_.end() ? nullptr : &found->second;
}

}  // namespace megatrain
