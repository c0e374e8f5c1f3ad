// SharedPages divides the bytes of files among the ranks that write them. Where the bytes of two
// ranks meet within a page, one of them must write the whole page: direct I/O writes whole pages,
// and on some shared file systems, two nodes that write parts of one page overwrite each other's.
// The rank that has the first byte of a page writes it; the others send it their bytes.
//
// SharedPages keeps copies of the bytes that do not fill a page: at most two pages for each
// contiguous range that the rank has of a file.
//
// Thread safety: one thread at a time may call methods.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DISK_SHARED_PAGES_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DISK_SHARED_PAGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/comm/communicator.h"

namespace megatrain {

class SharedPages {
 public:
  // `pieces` are the rank's bytes of file number `file`, which has `file_bytes` in all, in the
  // order of the file. Returns the ranges that the rank writes by itself, which are the pages of
  // which it has all bytes. Keeps copies of the rest. REQUIRES: every piece has a place in memory,
  // and Exchange was not called, nor AddFile for this file.
  std::vector<FileRange> AddFile(int file, int64_t file_bytes,
                                 const std::vector<FilePiece>& pieces);

  // Exchanges the kept bytes, which makes the pages of PagesOf whole. The ranks [begin, end) write
  // the files of this rank; the other ranks write other files. Returns the communicator's error, or
  // Internal if bytes of a page are missing. All ranks of the communicator must call this, once.
  absl::Status Exchange(Communicator* communicator, int begin, int end);

  // A page that this rank writes.
  struct Page {
    int64_t offset = 0;  // in the file
    int64_t filled = 0;  // the number of bytes that ranks have given
    std::string bytes;
  };
  // Returns the pages of file number `file` that this rank writes after the exchange. They point
  // into this object. REQUIRES: Exchange succeeded.
  std::vector<FilePiece> PagesOf(int file);

 private:
  void Keep(int file, int64_t file_bytes, int64_t offset, absl::string_view bytes);

  std::map<int, std::map<int64_t, Page>> pages_;  // of this rank, by file and offset
  std::string outbox_;                            // records of Fragment, each with its bytes
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DISK_SHARED_PAGES_H_
