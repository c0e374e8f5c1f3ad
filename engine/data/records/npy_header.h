// Parses the header of numpy's .npy files.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_NPY_HEADER_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_NPY_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/records/data_file_io.h"

namespace megatrain {

// The fields of a header but for fortran_order, which says nothing of an array of one dimension.
struct NpyHeader {
  std::string descr;  // numpy's type, such as "<u2"
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // in bytes from the start of the file
};

// Reads the header of a plain array, in format versions 1 to 3. Returns InvalidArgument, naming the
// file and the defect, for any other content, and the errors of DataFileReader::ReadAt. It does not
// compare the shape with the size of the file.
absl::StatusOr<NpyHeader> ReadNpyHeader(const DataFileReader& file);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_NPY_HEADER_H_
