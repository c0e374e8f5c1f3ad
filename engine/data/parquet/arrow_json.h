// Writes rows of Apache Arrow's record batches as JSON.
#ifndef MEGATRAIN_ENGINE_DATA_PARQUET_ARROW_JSON_H_
#define MEGATRAIN_ENGINE_DATA_PARQUET_ARROW_JSON_H_

#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>

namespace megatrain {

// Appends row `row` (from 0) of `batch` to `json` as parquet_records.h says, and returns "". If the
// row has a defect, returns its description, which names the column; `*json` is then unspecified.
std::string AppendRow(const arrow::RecordBatch& batch, int64_t row, std::string* json);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_PARQUET_ARROW_JSON_H_
