#include "engine/hf/hf_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/hf/experts/mxfp4.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/master_convert.h"
#include "engine/hf/weight_files.h"

namespace megatrain {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
// The decoding of MXFP4 takes strips of so many rows, and of so many blocks of each: 1 MiB of
// values.
constexpr int64_t kStripRows = 64;
constexpr int64_t kStripBlocks = 128;

class Weights : public HfWeights {
 public:
  Weights(std::string directory, const ModelLayout& layout, std::unique_ptr<WeightFiles> files)
      : directory_(std::move(directory)), layout_(layout), files_(std::move(files)) {}

  absl::Status LoadTile(int index, const Tile& tile) const override {
    ZeroPaddingAndMoments(tile);
    std::vector<char> chunk(kChunkBytes);
    for (const TensorSpec& tensor : layout_.tiles[index].tensors) {
      MT_RETURN_IF_ERROR(LoadTensor(tensor, tile, chunk));
    }
    return absl::OkStatus();
  }

  DType ExactDType() const override {
    DType exact = DType::kBF16;
    ForEachTensor(layout_, [&](int, const TensorSpec& tensor) {
      if (tensor.is_buffer) return;
      for (const WeightSource::Part& part : files_->SourceOf(tensor.name).parts) {
        if (part.dtype != FileDType::kBF16) exact = DType::kF32;
      }
    });
    return exact;
  }

 private:
  // transformers does not tie a head that differs from the embedding, whatever config.json says.
  // Compares `elements` of them.
  absl::Status CompareTiedHead(const WeightSource::Part& part, ElementRange elements) const {
    const StoredTensor& embedding = part.stored;
    const StoredTensor* const found = files_->Find(layout_.model.wrapper.OnDisk(kHeadTensorName));
    if (found == nullptr) return absl::OkStatus();
    const StoredTensor& head = *found;
    const int64_t size = FileDTypeBytes(part.dtype);
    MT_ASSIGN_OR_RETURN(const bool same,
                        SameBytes(embedding, head, elements.begin * size, elements.end * size));
    if (same) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        directory_, ": tensor \"", head.tensor->name, "\" differs from \"", embedding.tensor->name,
        "\", but tie_word_embeddings is true in config.json (or by default); set it to false to "
        "train both, or remove the tensor to train the embedding as the head"));
  }

  absl::Status LoadTensor(const TensorSpec& tensor, const Tile& tile,
                          std::vector<char>& chunk) const {
    const WeightSource& source = files_->SourceOf(tensor.name);
    const Tile place = TensorTile(tile, tensor);
    if (source.parts.empty()) return LoadMxfp4(tensor, source, place);
    if (layout_.model.tied_embeddings && tensor.name == kEmbeddingTensorName) {
      MT_RETURN_IF_ERROR(CompareTiedHead(source.parts.front(), place.held.state));
    }
    for (const TensorRun& run : HeldRunsOf(tile, tensor)) {
      for (const WeightSource::Part& part : source.parts) {
        MT_RETURN_IF_ERROR(LoadRun(tensor, run, part, place, chunk));
      }
    }
    return absl::OkStatus();
  }

  // Loads what `part` has of the run.
  static absl::Status LoadRun(const TensorSpec& tensor, const TensorRun& run,
                              const WeightSource::Part& part, const Tile& place,
                              std::vector<char>& chunk) {
    const int64_t size = FileDTypeBytes(part.dtype);
    // The part's elements that follow one another both in the whole tensor and in the file, and
    // where they begin there. A run of a tensor with columns lies in one row.
    int64_t begin = part.begin, end = part.begin + part.stored.tensor->elements, file = 0;
    if (part.columns > 0) {
      const int64_t width = tensor.shape.back(), row = run.source / width;
      begin += row * width;
      end = begin + part.columns;
      file = row * part.columns;
    }
    file -= begin;
    end = std::min(end, run.source + run.elements);
    for (int64_t at = std::max(begin, run.source); at < end;) {
      const int64_t elements = std::min(end - at, kChunkBytes / size);
      MT_RETURN_IF_ERROR(part.stored.reader->Read(*part.stored.tensor, (file + at) * size,
                                                  chunk.data(), elements * size));
      const int64_t bad =
          StoreMaster(part.dtype, chunk.data(), elements, place, run.place + at - run.source);
      if (bad >= 0) return BadValue(part.stored, file + at + bad, place);
      at += elements;
    }
    return absl::OkStatus();
  }

  static absl::Status BadValue(const StoredTensor& stored, int64_t element, const Tile& place) {
    return absl::InvalidArgumentError(absl::StrCat(
        stored.reader->path(), ": tensor \"", stored.tensor->name, "\": element ", element,
        place.weight_dtype == DType::kBF16
            ? " is not finite, or too large for a BF16 weight (3.396e38)"
            : " is not finite"));
  }

  // Decodes strips of rows, which are columns of the transposed matrices, and keeps what the place
  // holds. Strips of which it holds nothing are not read.
  absl::Status LoadMxfp4(const TensorSpec& tensor, const WeightSource& source,
                         const Tile& place) const {
    const int64_t depth = tensor.shape[1], columns = tensor.shape[2];
    const int64_t row_blocks = depth / kMxfp4BlockValues, matrix = depth * columns;
    const int64_t first = tensor.source_begin / matrix;
    std::vector<uint8_t> packed(kStripRows * kStripBlocks * kMxfp4BlockBytes);
    std::vector<uint8_t> scales(kStripRows * kStripBlocks);
    std::vector<float> values(kStripRows * kStripBlocks * kMxfp4BlockValues);
    // Reads a strip of a tensor [.., row_blocks, block_bytes], in one piece if it has whole rows.
    const auto read = [&](const StoredTensor& stored, int64_t row, int64_t rows, int64_t block,
                          int64_t blocks, int64_t block_bytes, uint8_t* out) -> absl::Status {
      const int64_t pieces = blocks == row_blocks ? 1 : rows;
      const int64_t bytes = rows / pieces * blocks * block_bytes;
      for (int64_t piece = 0; piece < pieces; ++piece) {
        MT_RETURN_IF_ERROR(stored.reader->Read(*stored.tensor,
                                               ((row + piece) * row_blocks + block) * block_bytes,
                                               out + piece * bytes, bytes));
      }
      return absl::OkStatus();
    };
    // Of a block: as many rows of the transposed matrix as it has values.
    const int64_t block_elements = kMxfp4BlockValues * columns;
    for (int64_t expert = 0; expert < tensor.elements / matrix; ++expert) {
      const ElementRange held =
          Intersection({expert * matrix, (expert + 1) * matrix}, place.held.state);
      if (held.elements() == 0) continue;
      const int64_t first_block = (held.begin - expert * matrix) / block_elements;
      const int64_t end_block = (held.end - expert * matrix + block_elements - 1) / block_elements;
      for (int64_t row = 0; row < columns; row += kStripRows) {
        const int64_t rows = std::min(kStripRows, columns - row);
        for (int64_t block = first_block; block < end_block; block += kStripBlocks) {
          const int64_t blocks = std::min(kStripBlocks, end_block - block);
          const int64_t file_row = (first + expert) * columns + row;
          MT_RETURN_IF_ERROR(
              read(source.blocks, file_row, rows, block, blocks, kMxfp4BlockBytes, packed.data()));
          MT_RETURN_IF_ERROR(read(source.scales, file_row, rows, block, blocks, 1, scales.data()));
          for (int64_t r = 0; r < rows; ++r) {
            DecodeMxfp4(&packed[r * blocks * kMxfp4BlockBytes], &scales[r * blocks], blocks, rows,
                        &values[r]);
          }
          for (int64_t i = 0; i < blocks * kMxfp4BlockValues; ++i) {
            const int64_t at = expert * matrix + (block * kMxfp4BlockValues + i) * columns + row;
            const ElementRange part = Intersection({at, at + rows}, held);
            const int64_t bad = StoreMaster(FileDType::kF32, &values[i * rows + part.begin - at],
                                            part.elements(), place, part.begin);
            if (bad < 0) continue;
            return absl::InvalidArgumentError(absl::StrCat(
                source.scales.reader->path(), ": tensor \"", source.scales.tensor->name,
                "\": the scale of block ", block + i / kMxfp4BlockValues, " of row ",
                row + part.begin - at + bad, " of expert ", first + expert,
                " is NaN (255), or makes its values infinite"));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  const std::string directory_;
  const ModelLayout layout_;
  const std::unique_ptr<WeightFiles> files_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HfWeights>> HfWeights::Open(const std::string& directory,
                                                           const ModelLayout& layout,
                                                           FileSystem* files) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WeightFiles> opened,
                      WeightFiles::Open(files, directory, layout));
  return std::make_unique<Weights>(directory, layout, std::move(opened));
}

}  // namespace megatrain
