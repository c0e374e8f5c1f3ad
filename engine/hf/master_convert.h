// Converts weights between the element types of files and the masters of tiles. A master is the
// FP32 value of a weight (engine/model/tile.h says how a tile holds it).
#ifndef MEGATRAIN_ENGINE_HF_MASTER_CONVERT_H_
#define MEGATRAIN_ENGINE_HF_MASTER_CONVERT_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/tile.h"

namespace megatrain {

enum class FileDType { kF32, kF16, kBF16 };

constexpr int64_t FileDTypeBytes(FileDType dtype) { return dtype == FileDType::kF32 ? 4 : 2; }

// Converts an IEEE binary16, exactly.
float F16ToFloat(uint16_t value);

// Converts `elements` packed values of a file, at any alignment, to the tile's masters from element
// `offset` on. Fills the remainder too if the tile has one. Returns the index of the first value
// that a master cannot hold (not finite, or infinite in the BF16 half of a BF16 tile), or -1 if
// there is none. All values are stored in either case. REQUIRES: the tile holds these elements.
int64_t StoreMaster(FileDType dtype, const void* values, int64_t elements, const Tile& tile,
                    int64_t offset);

// Converts `elements` weights of the tile from element `offset` on to `dtype`. FP32 from a BF16
// tile is the exact master if the tile has remainders, else the BF16 weight. BF16 from an FP32 tile
// is rounded as EncodeMaster does. REQUIRES: the tile holds these elements, and `values` is aligned
// to the size of `dtype`.
void LoadMaster(const Tile& tile, int64_t offset, int64_t elements, DType dtype, void* values);

// Sets the weights that belong to no tensor to zero, and all of the remainder and the moments.
// Sections that are null are passed over.
void ZeroPaddingAndMoments(const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_MASTER_CONVERT_H_
