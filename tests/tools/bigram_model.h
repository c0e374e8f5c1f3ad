// The plainest language model that is not trivial: the next token given the last one.
#ifndef MEGATRAIN_TESTS_TOOLS_BIGRAM_MODEL_H_
#define MEGATRAIN_TESTS_TOOLS_BIGRAM_MODEL_H_

#include <cstdint>
#include <vector>

namespace megatrain {

// Witten-Bell: the bigram's own frequencies, the unigram's in proportion to how many different
// tokens have followed the last one, and beneath them the uniform distribution:
//   p(b | a) = (n(a, b) + kinds(a) p(b)) / (n(a) + kinds(a))
//   p(b)     = (n(b) + kinds / vocabulary) / (n + kinds)
// No parameter is fitted, so none can be fitted to what is held out.
class BigramModel {
 public:
  explicit BigramModel(int64_t vocabulary);

  // REQUIRES: 0 <= last, next < vocabulary.
  void Add(int32_t last, int32_t next);
  // -log p(next | last), in nats.
  double Loss(int32_t last, int32_t next) const;

 private:
  const int64_t vocabulary_;
  std::vector<int64_t> pairs_;        // [last, next]
  std::vector<int64_t> after_;        // [last]: pairs that begin with it
  std::vector<int64_t> after_kinds_;  // [last]: different ones
  std::vector<int64_t> counts_;       // [next]
  int64_t total_ = 0;
  int64_t kinds_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_TOOLS_BIGRAM_MODEL_H_
