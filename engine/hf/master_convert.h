// Weights between the types of files and the masters of tiles.
#ifndef MEGATRAIN_ENGINE_HF_MASTER_CONVERT_H_
#define MEGATRAIN_ENGINE_HF_MASTER_CONVERT_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/tile.h"

namespace megatrain {

enum class FileDType { kF32, kF16, kBF16 };

constexpr int64_t FileDTypeBytes(FileDType dtype) { return dtype == FileDType::kF32 ? 4 : 2; }

// An IEEE binary16, exactly.
float F16ToFloat(uint16_t value);

// Converts `elements` packed values of a file (any alignment) to the tile's master from element
// `offset` of its section on; the remainder too where the tile has one. Returns the index of the
// first value that the master cannot hold (not finite, or infinite in its BF16 half), or -1.
int64_t StoreMaster(FileDType dtype, const void* values, int64_t elements, const Tile& tile,
                    int64_t offset);

// The other way: `elements` weights of the tile as `dtype`. FP32 from a BF16 tile is the exact
// master if the tile has remainders; BF16 from an FP32 tile is rounded as a split master is.
void LoadMaster(const Tile& tile, int64_t offset, int64_t elements, DType dtype, void* values);

// Zeroes the gaps between tensors' groups in weights and remainder, and the moments; sections that
// are null are left out.
void ZeroPaddingAndMoments(const Tile& tile);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_MASTER_CONVERT_H_
