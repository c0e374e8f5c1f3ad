// Writes the values of Arrow's arrays as JSON.
#ifndef MEGATRAIN_ENGINE_DATA_PARQUET_ARROW_JSON_H_
#define MEGATRAIN_ENGINE_DATA_PARQUET_ARROW_JSON_H_

#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>

namespace megatrain {

// Appends row `row` of `batch` to `json` as parquet_records.h says. Returns what is wrong with it,
// naming the column, or "" if nothing is; `json` is of no use otherwise.
std::string AppendRow(const arrow::RecordBatch& batch, int64_t row, std::string* json);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_PARQUET_ARROW_JSON_H_
