#include "engine/model/layer/shared_rows.h"

#include "engine/model/layer/activations.h"

namespace megatrain {
namespace {

SharedRows Place(const ModelDescription& model, DType dtype, int64_t t, bool training,
                 TensorCursor& cursor) {
  SharedRows rows;
  for (const LayerDescription& layer : model.layers) {
    const AttentionDescription& a = layer.attention;
    if (a.key_set < 0 || !a.projects_keys) continue;
    SharedRows::KeySet& set = rows.key_sets.emplace_back();
    cursor.Take(&set.rows, t * 2 * a.kv_width() * DTypeBytes(dtype));
    if (training) cursor.Take(&set.gradient, t * 2 * a.kv_width() * int64_t{sizeof(float)});
  }
  if (const int64_t width = model.layers.front().per_layer_input.width; width > 0) {
    cursor.Take(&rows.embedding, t * model.hidden * DTypeBytes(dtype));
    cursor.Take(&rows.per_layer_norm, width * DTypeBytes(dtype));
    if (training) cursor.Take(&rows.embedding_gradient, t * model.hidden * int64_t{sizeof(float)});
  }
  return rows;
}

}  // namespace

int64_t SharedRowsBytes(const ModelDescription& model, DType dtype, int64_t tokens, bool training) {
  TensorCursor cursor;
  Place(model, dtype, tokens, training, cursor);
  return cursor.offset;
}

SharedRows PlaceSharedRows(const ModelDescription& model, DType dtype, int64_t tokens,
                           bool training, void* block) {
  TensorCursor cursor{static_cast<char*>(block)};
  return Place(model, dtype, tokens, training, cursor);
}

}  // namespace megatrain
