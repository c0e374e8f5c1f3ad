#include "engine/tokenizer/parallel_encode.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Tokens of few languages need more to be cut as they are in the whole text.
constexpr size_t kWindowBytes = size_t{4} << 10;

struct Piece {
  size_t begin = 0;  // in the text; where the piece is expected to begin
  size_t end = 0;    // where the text that it is encoded with ends
  PieceState begin_state;
  // The result.
  absl::Status status;
  size_t bytes = 0;  // that were encoded
  PieceState end_state;
  std::vector<int32_t> ids;
};

size_t CharacterBegin(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (text[at] & 0xc0) == 0x80) --at;
  return at;
}

// Encodes the piece from `begin` on.
void Encode(const Tokenizer& tokenizer, std::string_view text, bool last, size_t begin,
            const PieceState& state, Piece& piece) {
  piece.end_state = state;
  piece.ids.clear();
  const absl::StatusOr<size_t> bytes =
      tokenizer.EncodePiece(text.substr(begin, piece.end - begin), last && piece.end == text.size(),
                            &piece.end_state, &piece.ids);
  piece.status = bytes.status();
  piece.bytes = bytes.ok() ? *bytes : 0;
}

// The pieces of which the beginning could be guessed, in the text's order, without results.
std::vector<Piece> Guess(const Tokenizer& tokenizer, ThreadPool& pool, std::string_view text,
                         size_t count, const PieceState& state) {
  std::vector<Piece> guesses(count);
  guesses[0].begin_state = state;
  pool.ParallelFor(static_cast<int64_t>(count) - 1, [&](int64_t block) {
    const size_t i = static_cast<size_t>(block) + 1;
    const size_t place = CharacterBegin(text, text.size() * i / count);
    const size_t window = CharacterBegin(text, place - std::min(place, kWindowBytes));
    guesses[i].end = place;
    Encode(tokenizer, text, /*last=*/false, window, {/*continued=*/true, {}}, guesses[i]);
    guesses[i].begin = window + guesses[i].bytes;
    guesses[i].begin_state = guesses[i].end_state;
  });
  std::vector<Piece> pieces(1);
  pieces[0].begin_state = state;
  for (size_t i = 1; i < count; ++i) {
    if (!guesses[i].status.ok() || guesses[i].bytes == 0) continue;
    pieces.back().end = guesses[i].end;
    pieces.emplace_back();
    pieces.back().begin = guesses[i].begin;
    pieces.back().begin_state = guesses[i].begin_state;
  }
  pieces.back().end = text.size();
  return pieces;
}

}  // namespace

absl::StatusOr<size_t> EncodePieceInParallel(const Tokenizer& tokenizer, ThreadPool& pool,
                                             std::string_view text, bool last, PieceState* state,
                                             std::vector<int32_t>* ids, size_t piece_bytes_min) {
  const size_t count = std::min(static_cast<size_t>(pool.threads()), text.size() / piece_bytes_min);
  if (count < 2) return tokenizer.EncodePiece(text, last, state, ids);
  std::vector<Piece> pieces = Guess(tokenizer, pool, text, count, *state);
  pool.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    Piece& piece = pieces[static_cast<size_t>(i)];
    Encode(tokenizer, text, last, piece.begin, piece.begin_state, piece);
  });
  size_t done = 0;
  PieceState reached = *state;
  for (Piece& piece : pieces) {
    if (piece.begin != done || piece.begin_state != reached) {
      Encode(tokenizer, text, last, done, reached, piece);
    }
    MT_RETURN_IF_ERROR(piece.status);
    ids->insert(ids->end(), piece.ids.begin(), piece.ids.end());
    piece.ids = {};
    done += piece.bytes;
    if (piece.bytes > 0) reached = piece.end_state;
  }
  *state = reached;
  return done;
}

}  // namespace megatrain
