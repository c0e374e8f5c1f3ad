// megatrain-parquet FILE_BYTES COLUMN: sends the rows of a Parquet file over the socket that is its
// standard input, as protocol.h says. ParquetRecordReader starts it.
#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <linux/capability.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/parquet/arrow_json.h"
#include "engine/data/parquet/protocol.h"

namespace megatrain {
namespace {

constexpr size_t kSendBytes = size_t{1} << 20;
// One column is read in pieces of this size.
constexpr int64_t kColumnBufferBytes = int64_t{1} << 18;
// Rows that are decoded at a time: about this many bytes, by what the file says of itself.
constexpr int64_t kBatchBytes = int64_t{4} << 20;
constexpr int64_t kBatchRowsMax = 1024;
// The whole process: libraries, what Arrow takes beside its pool, and two copies of a record.
constexpr rlim_t kAddressBytesMax = rlim_t{6} << 30;

// The end of the socket. Every failure to send or receive ends the process: the reader is gone.
class Socket {
 public:
  void Send(ParquetMessage message, int64_t at, const std::string& text) {
    const ParquetHeader header = {message, at, static_cast<int64_t>(text.size())};
    Append(&header, sizeof(header));
    Append(text.data(), text.size());
  }
  void Flush() {
    const char* from = buffer_.data();
    for (size_t left = buffer_.size(); left > 0;) {
      const ssize_t sent = ::write(STDIN_FILENO, from, left);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) std::_Exit(1);
      from += sent;
      left -= static_cast<size_t>(sent);
    }
    buffer_.clear();
  }
  // Reads up to `bytes` bytes of the file and returns how many.
  int64_t ReadFile(int64_t at, int64_t bytes, void* to) {
    const ParquetHeader header = {ParquetMessage::kRead, at, bytes};
    Append(&header, sizeof(header));
    Flush();
    int64_t got = 0;
    Receive(&got, sizeof(got));
    if (got < 0 || got > bytes) std::_Exit(1);
    Receive(to, static_cast<size_t>(got));
    return got;
  }

 private:
  void Append(const void* data, size_t bytes) {
    buffer_.append(static_cast<const char*>(data), bytes);
    if (buffer_.size() >= kSendBytes) Flush();
  }
  void Receive(void* to, size_t bytes) {
    char* out = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got = ::read(STDIN_FILENO, out, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) std::_Exit(1);
      out += got;
      bytes -= static_cast<size_t>(got);
    }
  }
  std::string buffer_;
};

class RemoteFile : public arrow::io::RandomAccessFile {
 public:
  RemoteFile(Socket* socket, int64_t size, arrow::MemoryPool* pool)
      : socket_(socket), size_(size), pool_(pool) {
    set_mode(arrow::io::FileMode::READ);
  }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> GetSize() override { return size_; }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    if (position < 0 || bytes < 0) return arrow::Status::Invalid("a place before the file");
    bytes = std::min(bytes, std::max<int64_t>(0, size_ - position));
    int64_t done = 0;
    while (done < bytes) {
      const int64_t got =
          socket_->ReadFile(position + done, std::min(bytes - done, kParquetReadBytesMax),
                            static_cast<char*>(out) + done);
      if (got == 0) return arrow::Status::IOError("the file became shorter while it was read");
      done += got;
    }
    return done;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    bytes = std::min(bytes, std::max<int64_t>(0, size_ - position));
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(bytes, pool_));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position, bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(got));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position_, bytes, out));
    position_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
    position_ += buffer->size();
    return buffer;
  }

 private:
  Socket* const socket_;
  const int64_t size_;
  arrow::MemoryPool* const pool_;
  int64_t position_ = 0;
};

// Checks what the footer claims against the file, before anything is allocated by it.
arrow::Status CheckSizes(const parquet::FileMetaData& metadata, int64_t file_bytes) {
  int64_t rows = 0;
  for (int g = 0; g < metadata.num_row_groups(); ++g) {
    const std::unique_ptr<parquet::RowGroupMetaData> group = metadata.RowGroup(g);
    if (group->num_rows() < 0 || group->num_rows() > metadata.num_rows() - rows) {
      return arrow::Status::Invalid("row group ", g, " claims ", group->num_rows(),
                                    " rows, and the file ", metadata.num_rows(), " in all");
    }
    rows += group->num_rows();
    for (int c = 0; c < group->num_columns(); ++c) {
      const std::unique_ptr<parquet::ColumnChunkMetaData> column = group->ColumnChunk(c);
      int64_t begin = column->data_page_offset();
      if (column->has_dictionary_page() && column->dictionary_page_offset() > 0) {
        begin = std::min(begin, column->dictionary_page_offset());
      }
      const int64_t bytes = column->total_compressed_size();
      if (begin < 0 || bytes < 0 || begin > file_bytes || bytes > file_bytes - begin) {
        return arrow::Status::Invalid("column ", c, " of row group ", g, " claims ", bytes,
                                      " bytes at byte ", begin, " of a file of ", file_bytes);
      }
    }
  }
  if (rows != metadata.num_rows()) {
    return arrow::Status::Invalid("its row groups have ", rows, " rows, and the file claims ",
                                  metadata.num_rows());
  }
  return arrow::Status::OK();
}

// The leaves of `column`, or all if there is no such column or it is "".
std::vector<int> Leaves(const parquet::SchemaDescriptor& schema, const std::string& column) {
  std::vector<int> all, chosen;
  for (int i = 0; i < schema.num_columns(); ++i) {
    all.push_back(i);
    if (!column.empty() && schema.GetColumnRoot(i)->name() == column) chosen.push_back(i);
  }
  return chosen.empty() ? all : chosen;
}

// The rows that take about kBatchBytes, by what row groups claim of themselves.
int64_t BatchRows(const parquet::FileMetaData& metadata) {
  int64_t rows_min = kBatchRowsMax;
  for (int g = 0; g < metadata.num_row_groups(); ++g) {
    const std::unique_ptr<parquet::RowGroupMetaData> group = metadata.RowGroup(g);
    if (group->num_rows() == 0) continue;
    const int64_t bytes = std::max<int64_t>(group->total_byte_size(), 1);
    const double rows = static_cast<double>(kBatchBytes) * static_cast<double>(group->num_rows()) /
                        static_cast<double>(bytes);
    if (rows < static_cast<double>(rows_min)) rows_min = static_cast<int64_t>(rows);
  }
  return std::max<int64_t>(1, rows_min);
}

arrow::Status SendRows(const arrow::RecordBatch& batch, int64_t* row, Socket* socket) {
  std::string json;
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    json.clear();
    const std::string defect = AppendRow(batch, i, &json);
    ++*row;
    if (defect.empty()) {
      socket->Send(ParquetMessage::kRecord, *row, json);
    } else {
      socket->Send(ParquetMessage::kDefect, *row, defect.substr(0, kParquetReasonBytesMax));
    }
  }
  return arrow::Status::OK();
}

arrow::Status SendFile(int64_t file_bytes, const std::string& column, Socket* socket) {
  arrow::CappedMemoryPool pool(arrow::system_memory_pool(), kParquetBytesMax);
  parquet::ReaderProperties properties(&pool);
  properties.enable_buffered_stream();
  properties.set_buffer_size(kColumnBufferBytes);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(
      builder.Open(std::make_shared<RemoteFile>(socket, file_bytes, &pool), properties));
  const std::shared_ptr<parquet::FileMetaData> metadata = builder.raw_reader()->metadata();
  ARROW_RETURN_NOT_OK(CheckSizes(*metadata, file_bytes));
  parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
  arrow_properties.set_pre_buffer(false);
  arrow_properties.set_batch_size(BatchRows(*metadata));
  std::unique_ptr<parquet::arrow::FileReader> reader;
  ARROW_RETURN_NOT_OK(builder.memory_pool(&pool)->properties(arrow_properties)->Build(&reader));
  const std::vector<int> leaves = Leaves(*metadata->schema(), column);
  int64_t row = 0;
  for (int g = 0; g < metadata->num_row_groups(); ++g) {
    const int64_t end = row + metadata->RowGroup(g)->num_rows();
    ARROW_ASSIGN_OR_RAISE(const auto batches, reader->GetRecordBatchReader({g}, leaves));
    while (row < end) {
      std::shared_ptr<arrow::RecordBatch> batch;
      ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
      if (batch == nullptr || batch->num_rows() == 0 || batch->num_rows() > end - row) {
        return arrow::Status::Invalid("row group ", g, " has not the ",
                                      metadata->RowGroup(g)->num_rows(), " rows that it claims");
      }
      ARROW_RETURN_NOT_OK(batch->Validate());
      ARROW_RETURN_NOT_OK(SendRows(*batch, &row, socket));
    }
  }
  return arrow::Status::OK();
}

std::string Reason(const arrow::Status& status) {
  std::string text = status.IsOutOfMemory()
                         ? "takes more than 1 GiB of memory at a time; write it with smaller row "
                           "groups and pages"
                         : status.message();
  // Lines behind the first are places in Arrow's sources.
  return text.substr(0, std::min<size_t>(text.find('\n'), kParquetReasonBytesMax));
}

// A daemon that acts for several users has rights that a decoder does not need.
// Where memory is short, this process ends and not the daemon that started it.
void GiveUpRights() {
  if (std::FILE* const score = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("1000", score);
    std::fclose(score);
  }
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  ::syscall(SYS_capset, &header, none);
#ifndef __SANITIZE_ADDRESS__
  const rlimit limit = {kAddressBytesMax, kAddressBytesMax};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("megatrain-parquet reads Parquet files for megatraind, which starts it\n", stderr);
    return 2;
  }
  GiveUpRights();
  Socket socket;
  arrow::Status status;
  try {
    status = SendFile(std::atoll(argv[1]), argv[2], &socket);
  } catch (const std::bad_alloc&) {
    status = arrow::Status::OutOfMemory("");
  } catch (const std::exception& error) {
    status = arrow::Status::Invalid(error.what());
  }
  socket.Send(status.ok() ? ParquetMessage::kEnd : ParquetMessage::kFailure, 0,
              status.ok() ? "" : Reason(status));
  socket.Flush();
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
