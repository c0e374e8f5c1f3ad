#include "tests/tools/bigram_model.h"

#include <cmath>

namespace megatrain {

BigramModel::BigramModel(int64_t vocabulary)
    : vocabulary_(vocabulary),
      pairs_(vocabulary * vocabulary),
      after_(vocabulary),
      after_kinds_(vocabulary),
      counts_(vocabulary) {}

void BigramModel::Add(int32_t last, int32_t next) {
  if (pairs_[last * vocabulary_ + next]++ == 0) ++after_kinds_[last];
  ++after_[last];
  if (counts_[next]++ == 0) ++kinds_;
  ++total_;
}

double BigramModel::Loss(int32_t last, int32_t next) const {
  const double uniform = 1.0 / static_cast<double>(vocabulary_);
  if (total_ == 0) return -std::log(uniform);
  const double unigram =
      (static_cast<double>(counts_[next]) + static_cast<double>(kinds_) * uniform) /
      static_cast<double>(total_ + kinds_);
  if (after_[last] == 0) return -std::log(unigram);
  const double kinds = static_cast<double>(after_kinds_[last]);
  const double bigram = (static_cast<double>(pairs_[last * vocabulary_ + next]) + kinds * unigram) /
                        (static_cast<double>(after_[last]) + kinds);
  return -std::log(bigram);
}

}  // namespace megatrain
