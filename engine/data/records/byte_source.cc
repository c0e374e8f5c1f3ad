#include "engine/data/records/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr size_t kInputBytes = size_t{256} << 10;

// The compressed bytes that were read and not yet used.
class Input {
 public:
  Input(ByteSource* source, std::string path, const char* kind)
      : source_(source), path_(std::move(path)), kind_(kind), buffer_(kInputBytes) {}

  // Reads on if everything was used. Returns false at the end of the source.
  absl::StatusOr<bool> HasBytes() {
    if (position_ < end_) return true;
    before_ += static_cast<int64_t>(end_);
    position_ = end_ = 0;
    MT_ASSIGN_OR_RETURN(end_, source_->Read(buffer_.data(), buffer_.size()));
    return end_ > 0;
  }
  const char* data() const { return buffer_.data() + position_; }
  size_t size() const { return end_ - position_; }
  void Use(size_t bytes) { position_ += bytes; }

  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": its ", kind_, " data ", what, " (near byte ",
                     before_ + static_cast<int64_t>(position_), " of the compressed file)"));
  }
  absl::Status CutShort() const { return Error("ends too early: the file is cut short"); }

 private:
  ByteSource* const source_;
  const std::string path_;
  const char* const kind_;
  std::vector<char> buffer_;
  size_t position_ = 0;
  size_t end_ = 0;
  int64_t before_ = 0;  // the place of buffer_[0] in the source
};

class GzipSource : public ByteSource {
 public:
  GzipSource(ByteSource* source, std::string path) : input_(source, std::move(path), "gzip") {
    constexpr int kGzipOnly = 16;  // added to the window's bits
    good_ = inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK;
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(void* to, size_t bytes) override {
    if (!good_) return absl::ResourceExhaustedError("no memory to decompress gzip");
    constexpr size_t kMax = std::numeric_limits<uInt>::max();
    stream_.next_out = static_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min(bytes, kMax));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      MT_ASSIGN_OR_RETURN(const bool more, input_.HasBytes());
      if (!more) {
        if (inside_ || !any_) return input_.CutShort();
        return 0;
      }
      inside_ = any_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_.data()));
      stream_.avail_in = static_cast<uInt>(input_.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      input_.Use(input_.size() - stream_.avail_in);
      if (result == Z_STREAM_END) {
        inside_ = false;
        inflateReset(&stream_);  // another member may follow
      } else if (result == Z_MEM_ERROR) {
        return absl::ResourceExhaustedError("no memory to decompress gzip");
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return input_.Error(
            absl::StrCat("is damaged: ", stream_.msg != nullptr ? stream_.msg : "not gzip"));
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  Input input_;
  z_stream stream_ = {};
  bool good_ = false;
  bool inside_ = false;  // a member has begun and not ended
  bool any_ = false;
};

class ZstdSource : public ByteSource {
 public:
  ZstdSource(ByteSource* source, std::string path)
      : input_(source, std::move(path), "zstd"), stream_(ZSTD_createDStream()) {}
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  absl::StatusOr<size_t> Read(void* to, size_t bytes) override {
    if (stream_ == nullptr) return absl::ResourceExhaustedError("no memory to decompress zstd");
    ZSTD_outBuffer out = {to, bytes, 0};
    while (out.pos == 0) {
      MT_ASSIGN_OR_RETURN(const bool more, input_.HasBytes());
      if (!more && (!any_ || (inside_ && !full_))) return input_.CutShort();
      if (!more && !inside_) return 0;
      // Without input, what did not fit into the last output comes out.
      ZSTD_inBuffer in = {more ? input_.data() : nullptr, more ? input_.size() : 0, 0};
      const size_t left = ZSTD_decompressStream(stream_, &out, &in);
      if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation) {
        return absl::ResourceExhaustedError("no memory to decompress zstd");
      }
      if (ZSTD_isError(left)) {
        return input_.Error(absl::StrCat("is damaged: ", ZSTD_getErrorName(left)));
      }
      input_.Use(in.pos);
      any_ = true;
      inside_ = left != 0;
      full_ = out.pos == out.size;
    }
    return out.pos;
  }

 private:
  Input input_;
  ZSTD_DStream* const stream_;
  bool inside_ = false;  // a frame has begun and not ended
  bool full_ = false;    // the last output was filled, so there may be more without input
  bool any_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> Decompress(Compression compression, ByteSource* source,
                                       std::string path) {
  if (compression == Compression::kGzip) {
    return std::make_unique<GzipSource>(source, std::move(path));
  }
  return std::make_unique<ZstdSource>(source, std::move(path));
}

}  // namespace megatrain
