// BadRecords counts and names the records that were left out because they cannot be read
// (data.on_bad_record: skip).
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_BAD_RECORDS_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_BAD_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace megatrain {

struct BadRecords {
  // The most that are named. Further ones are only counted.
  static constexpr size_t kNamedMax = 100;

  int64_t count = 0;
  // The first of them, each as its place and the reason: "FILE:PLACE: REASON". FILE is left out in
  // the records of one file (FileWordsMeta), and PLACE if the whole file is the record.
  std::vector<std::string> named;

  // Returns how many of the records are counted and not named.
  int64_t unnamed() const { return count - static_cast<int64_t>(named.size()); }

  // Adds a record, whose `name` is as in `named`.
  void Add(std::string name) {
    ++count;
    if (named.size() < kNamedMax) named.push_back(std::move(name));
  }
  // Adds the records of a later part of the data, with `path` before each name.
  void Add(const BadRecords& part, const std::string& path = "") {
    count += part.count;
    for (const std::string& name : part.named) {
      if (named.size() == kNamedMax) break;
      named.push_back(absl::StrCat(path, name));
    }
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_BAD_RECORDS_H_
