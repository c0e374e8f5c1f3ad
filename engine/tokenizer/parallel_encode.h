// Encodes the pieces of one text on several threads.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_PARALLEL_ENCODE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_PARALLEL_ENCODE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// By default a text is cut into pieces of about this many bytes or more.
inline constexpr size_t kParallelPieceBytesMin = size_t{64} << 10;

// Does as tokenizer.EncodePiece, on the threads of `pool`, and returns its errors. It may encode
// another number of bytes unless `last`; the ids of the whole text are the same. After an error
// `*state` is unchanged, and `ids` may have ids of a part of the text. Do not call it within a loop
// of `pool`. REQUIRES: piece_bytes_min > 0.
//
// The text is cut into equal pieces, one for each thread, or fewer if they would be shorter than
// `piece_bytes_min`. A piece must begin between two tokens. Such a place is guessed: the 4 KiB
// before the cut are encoded as a text that goes on, and the guess is where EncodePiece stops. If
// it stops nowhere, the piece is joined to the one before. All pieces are then encoded at once. A
// guess was wrong if the piece before does not end there with the same state. The piece is then
// encoded again from where the one before it ended, on the calling thread.
absl::StatusOr<size_t> EncodePieceInParallel(const Tokenizer& tokenizer, ThreadPool& pool,
                                             std::string_view text, bool last, PieceState* state,
                                             std::vector<int32_t>* ids,
                                             size_t piece_bytes_min = kParallelPieceBytesMin);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_PARALLEL_ENCODE_H_
