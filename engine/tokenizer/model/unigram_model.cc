#include "engine/tokenizer/model/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr uint32_t kNoPath = std::numeric_limits<uint32_t>::max();
// The stretch without a settled place from which on the ways are compared.
constexpr size_t kStretchBytes = size_t{4} << 10;
// The most settled places that are tried for a cut, from the end of a word.
constexpr size_t kPlacesMax = 256;

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
    all_bytes_ = all_bytes_ && byte_ids_[byte] >= 0;
  }
}

size_t UnigramModel::Meet(const std::vector<BestPath>& paths, size_t origin,
                          std::vector<size_t> places) {
  // The farthest place goes back by a token until all are the same.
  std::priority_queue<size_t> queue(std::less<size_t>(), std::move(places));
  while (true) {
    const size_t farthest = queue.top();
    while (!queue.empty() && queue.top() == farthest) queue.pop();
    if (queue.empty() || farthest == origin) return farthest;
    queue.push(paths[farthest - origin].begin);
  }
}

absl::Status UnigramModel::Search(std::string_view word, double score, size_t limit,
                                  ModelBuffers* buffers, size_t* origin_out,
                                  absl::FunctionRef<void(const Settled&)> settled) const {
  // paths[i] is the best way to the place `origin` + i, where `origin` is the last settled place.
  std::vector<BestPath>& paths = buffers->paths;
  size_t& origin = *origin_out;
  origin = 0;
  size_t reach = 0;  // the farthest place that a token reaches
  size_t stretch = kStretchBytes;
  const auto path = [&](size_t place) -> BestPath& {
    if (place - origin >= paths.size()) paths.resize(place - origin + 1, {0, kNoPath, 0});
    return paths[place - origin];
  };
  const auto settle = [&](size_t place) {
    const BestPath& best = path(place);
    settled({place, best.score, unknown_id_.has_value() && best.id == *unknown_id_});
    paths.erase(paths.begin(), paths.begin() + static_cast<ptrdiff_t>(place - origin));
    origin = place;
    stretch = kStretchBytes;
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
    if (at > limit) continue;
    if (reach == at) {  // no token reaches across
      settle(at);
    } else if (at - origin >= stretch) {
      // A way goes on from here, or from where the best token begins that reaches across.
      std::vector<size_t> places = {at};
      for (size_t place = at + 1; place <= reach; ++place) {
        if (paths[place - origin].begin != kNoPath) places.push_back(paths[place - origin].begin);
      }
      const size_t place = Meet(paths, origin, std::move(places));
      stretch *= 2;
      if (place > origin) settle(place);
    }
  }
  return absl::OkStatus();
}

void UnigramModel::WriteUnknown(std::string_view word, size_t begin, size_t end, bool long_run,
                                bool rest, std::vector<TokenAt>* tokens) const {
  if (begin >= end) return;
  const std::string_view text = word.substr(begin, end - begin);
  const auto at = static_cast<uint32_t>(begin);
  if (const auto found = vocabulary().find(text); !long_run && found != vocabulary().end()) {
    tokens->push_back({found->second, at});
    return;
  }
  const bool bytes = byte_fallback_ && std::all_of(text.begin(), text.end(), [this](char c) {
                       return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                     });
  if (!bytes) {
    if (!rest) tokens->push_back({*unknown_id_, at});
    return;
  }
  for (const char c : text) tokens->push_back({byte_ids_[static_cast<uint8_t>(c)], at});
}

void UnigramModel::Walk(size_t begin, size_t end, ModelBuffers* buffers) const {
  // From the end to the beginning, and then turned round.
  std::vector<TokenAt>& way = buffers->symbols;
  const size_t first = way.size();
  const size_t origin = begin;
  while (end > begin) {
    const BestPath& path = buffers->paths[end - origin];
    way.push_back({path.id, path.begin});
    end = path.begin;
  }
  std::reverse(way.begin() + static_cast<ptrdiff_t>(first), way.end());
}

absl::Status UnigramModel::Encode(std::string_view word, const WordState& state,
                                  ModelBuffers* buffers) const {
  return EncodePart(word, state, /*open=*/false, buffers);
}

absl::Status UnigramModel::EncodePart(std::string_view word, const WordState& state, bool open,
                                      ModelBuffers* buffers) const {
  std::vector<TokenAt>& tokens = buffers->tokens;
  tokens.clear();
  buffers->symbols.clear();
  size_t done = 0, origin = 0;
  size_t unknown = 0;  // where the run of unknown characters before `written` begins
  bool in_unknown = state.unknown;
  bool rest = state.unknown;  // of a run that another part began
  const auto write_unknown = [&](size_t end, bool goes_on) {
    WriteUnknown(word, unknown, end, rest || goes_on, rest, &tokens);
    rest = false;
  };
  const auto write = [&] {
    for (const TokenAt& token : buffers->symbols) {
      const bool is_unknown = unknown_id_.has_value() && token.id == *unknown_id_;
      if (is_unknown && !in_unknown) unknown = token.begin;
      if (!is_unknown) {
        if (in_unknown) write_unknown(token.begin, /*goes_on=*/false);
        tokens.push_back(token);
      }
      in_unknown = is_unknown;
    }
    buffers->symbols.clear();
  };
  MT_RETURN_IF_ERROR(
      Search(word, state.score, word.size(), buffers, &origin, [&](const Settled& place) {
        Walk(done, place.offset, buffers);
        done = place.offset;
        write();
      }));
  if (in_unknown) write_unknown(word.size(), open);
  return absl::OkStatus();
}

absl::StatusOr<size_t> UnigramModel::EncodeOpen(std::string_view word,
                                                absl::FunctionRef<bool(size_t)> may_cut,
                                                WordState* state, ModelBuffers* buffers) const {
  // A token might reach beyond the end from a place behind `limit`. The ways to all of these are
  // the same up to where they meet.
  const size_t limit = word.size() > longest_ ? word.size() - longest_ : 0;
  std::deque<Settled> places;
  size_t origin = 0;
  size_t run = 0;  // where the run of unknown characters begins that ends at the last place
  bool in_run = state->unknown;
  std::deque<size_t> runs;  // of the places
  const auto add = [&](const Settled& place, size_t before) {
    if (place.unknown && !in_run) run = before;
    in_run = place.unknown;
    places.push_back(place);
    runs.push_back(run);
    if (places.size() > kPlacesMax) {
      places.pop_front();
      runs.pop_front();
    }
  };
  const std::vector<BestPath>& paths = buffers->paths;
  const auto is_unknown = [&](int32_t id) { return unknown_id_.has_value() && id == *unknown_id_; };
  size_t done = 0;
  // Every token of the ways that are settled ends at a settled place.
  const auto add_way = [&](size_t begin, size_t end) {
    buffers->symbols.clear();
    Walk(begin, end, buffers);
    const std::vector<TokenAt>& way = buffers->symbols;
    for (size_t i = 0; i < way.size(); ++i) {
      const size_t to = i + 1 < way.size() ? way[i + 1].begin : end;
      add({to, paths[to - begin].score, is_unknown(way[i].id)}, way[i].begin);
    }
  };
  MT_RETURN_IF_ERROR(Search(word, state->score, limit, buffers, &origin, [&](const Settled& place) {
    add_way(done, place.offset);
    done = place.offset;
  }));
  std::vector<size_t> ends;
  for (size_t place = std::max(limit, origin); place <= word.size(); ++place) {
    if (place == origin || paths[place - origin].begin != kNoPath) ends.push_back(place);
  }
  if (!ends.empty()) add_way(origin, Meet(paths, origin, std::move(ends)));
  for (; !places.empty(); places.pop_back(), runs.pop_back()) {
    const Settled place = places.back();
    // A run of unknown characters is cut if it is too long to be a token.
    const bool of_before = state->unknown && runs.back() == 0;
    const bool cuts_run =
        of_before || (place.offset - runs.back() > longest_ && (!byte_fallback_ || all_bytes_));
    if ((place.unknown && !cuts_run) || !may_cut(place.offset)) continue;
    MT_RETURN_IF_ERROR(EncodePart(word.substr(0, place.offset), *state, place.unknown, buffers));
    *state = {/*begun=*/true, place.unknown, place.score};
    return place.offset;
  }
  return 0;
}

}  // namespace megatrain
