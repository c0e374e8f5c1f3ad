#include "engine/tokenizer/model/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr uint32_t kNoPath = std::numeric_limits<uint32_t>::max();

}  // namespace

absl::StatusOr<std::unique_ptr<TokenModel>> UnigramModel::Make(
    const std::vector<std::pair<std::string, double>>& pieces, std::optional<int32_t> unknown_id,
    bool byte_fallback) {
  TextMap<int32_t> vocabulary;
  vocabulary.reserve(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    const auto& [token, score] = pieces[id];
    if (!std::isfinite(score)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab[", id, "]: the score is not a finite number"));
    }
    if (!vocabulary.emplace(token, static_cast<int32_t>(id)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab[", id, "]: the token \"", token, "\" is there twice"));
    }
  }
  if (unknown_id.has_value() &&
      (*unknown_id < 0 || static_cast<size_t>(*unknown_id) >= pieces.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.unk_id ", *unknown_id, " is not the id of one of the ", pieces.size(), " tokens"));
  }
  return std::unique_ptr<TokenModel>(
      new UnigramModel(std::move(vocabulary), pieces, unknown_id, byte_fallback));
}

UnigramModel::UnigramModel(TextMap<int32_t> vocabulary,
                           const std::vector<std::pair<std::string, double>>& pieces,
                           std::optional<int32_t> unknown_id, bool byte_fallback)
    : TokenModel(std::move(vocabulary)), unknown_id_(unknown_id), byte_fallback_(byte_fallback) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [token, score] : pieces) {
    tokens.emplace_back(token, static_cast<int32_t>(tokens.size()));
    scores_.push_back(score);
    least = std::min(least, score);
    longest_ = std::max(longest_, token.size());
  }
  trie_ = TokenTrie(std::move(tokens));
  unknown_score_ = least - kUnknownPenalty;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = this->vocabulary().find(ByteToken(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == this->vocabulary().end() ? -1 : found->second;
  }
}

absl::Status UnigramModel::Search(
    std::string_view word, double score, ModelBuffers* buffers,
    absl::FunctionRef<void(size_t offset, double score)> settled) const {
  // paths[i] is the best way to the place `origin` + i, where `origin` is the last settled place.
  std::vector<BestPath>& paths = buffers->paths;
  size_t origin = 0;
  size_t reach = 0;  // the farthest place that a token reaches
  const auto path = [&](size_t place) -> BestPath& {
    if (place - origin >= paths.size()) paths.resize(place - origin + 1, {0, kNoPath, 0});
    return paths[place - origin];
  };
  paths.assign(1, {score, kNoPath, 0});
  for (size_t at = 0; at < word.size();) {
    const double here = paths[at - origin].score;
    const size_t character = Utf8Length(static_cast<unsigned char>(word[at]));
    bool has_single = false;
    const auto offer = [&](size_t end, double score_there, int32_t id) {
      BestPath& target = path(end);
      if (target.begin == kNoPath || score_there > target.score) {
        target = {score_there, static_cast<uint32_t>(at), id};
      }
      reach = std::max(reach, end);
    };
    trie_.ForEachPrefix(word.substr(at), [&](int32_t id, size_t length) {
      offer(at + length, scores_[static_cast<size_t>(id)] + here, id);
      has_single = has_single || length == character;
    });
    if (!has_single) {
      if (!unknown_id_.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the text has \"", ToAbsl(word.substr(at, character)),
            "\", which is not a token, and the tokenizer has no unknown token (model.unk_id)"));
      }
      offer(at + character, unknown_score_ + here, *unknown_id_);
    }
    at += character;
    if (reach == at) {  // no token reaches across
      settled(at, path(at).score);
      paths[0] = paths[at - origin];
      paths.resize(1);
      origin = at;
    }
  }
  return absl::OkStatus();
}

void UnigramModel::WriteUnknown(std::string_view word, size_t begin, size_t end,
                                std::vector<TokenAt>* tokens) const {
  if (begin >= end) return;
  const std::string_view text = word.substr(begin, end - begin);
  const auto at = static_cast<uint32_t>(begin);
  if (const auto found = vocabulary().find(text); found != vocabulary().end()) {
    tokens->push_back({found->second, at});
    return;
  }
  const bool bytes = byte_fallback_ && std::all_of(text.begin(), text.end(), [this](char c) {
                       return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                     });
  if (!bytes) {
    tokens->push_back({*unknown_id_, at});
    return;
  }
  for (const char c : text) tokens->push_back({byte_ids_[static_cast<uint8_t>(c)], at});
}

void UnigramModel::Walk(std::string_view word, size_t begin, size_t end,
                        ModelBuffers* buffers) const {
  // From the end to the beginning, and then turned round.
  std::vector<TokenAt>& way = buffers->symbols;
  const size_t first = way.size();
  while (end > begin) {
    const BestPath& path = buffers->paths[end - begin];
    way.push_back({path.id, path.begin});
    end = path.begin;
  }
  std::reverse(way.begin() + static_cast<ptrdiff_t>(first), way.end());
}

absl::Status UnigramModel::Encode(std::string_view word, double score,
                                  ModelBuffers* buffers) const {
  std::vector<TokenAt>& tokens = buffers->tokens;
  tokens.clear();
  buffers->symbols.clear();
  size_t done = 0;
  size_t unknown = 0;  // where the run of unknown characters before `written` begins
  bool in_unknown = false;
  const auto write = [&] {
    for (const TokenAt& token : buffers->symbols) {
      const bool is_unknown = unknown_id_.has_value() && token.id == *unknown_id_;
      if (is_unknown && !in_unknown) unknown = token.begin;
      if (!is_unknown) {
        if (in_unknown) WriteUnknown(word, unknown, token.begin, &tokens);
        tokens.push_back(token);
      }
      in_unknown = is_unknown;
    }
    buffers->symbols.clear();
  };
  MT_RETURN_IF_ERROR(Search(word, score, buffers, [&](size_t place, double) {
    Walk(word, done, place, buffers);
    done = place;
    write();
  }));
  if (in_unknown) WriteUnknown(word, unknown, word.size(), &tokens);
  return absl::OkStatus();
}

absl::StatusOr<size_t> UnigramModel::EncodeOpen(std::string_view word,
                                                absl::FunctionRef<bool(size_t)> may_cut,
                                                double* score, ModelBuffers* buffers) const {
  // Places near the end are not settled: a token might reach across from before them once there is
  // more text. A token is looked up from every place before, so one that would reach beyond the end
  // is recognised by a token's length.
  size_t cut = 0;
  double there = 0;
  const size_t limit = word.size() > longest_ ? word.size() - longest_ : 0;
  buffers->symbols.clear();
  size_t done = 0;
  MT_RETURN_IF_ERROR(Search(word, *score, buffers, [&](size_t place, double sum) {
    Walk(word, done, place, buffers);
    done = place;
    // A run of unknown characters is not cut.
    const bool unknown = unknown_id_.has_value() && buffers->symbols.back().id == *unknown_id_;
    buffers->symbols.clear();
    if (place > limit || unknown || !may_cut(place)) return;
    cut = place;
    there = sum;
  }));
  if (cut == 0) return 0;
  MT_RETURN_IF_ERROR(Encode(word.substr(0, cut), *score, buffers));
  *score = there;
  return cut;
}

}  // namespace megatrain
