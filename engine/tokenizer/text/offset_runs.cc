#include "engine/tokenizer/text/offset_runs.h"

#include <algorithm>

namespace megatrain {

size_t OriginalOffset(const OffsetRuns& runs, size_t offset, size_t* hint) {
  if (runs.empty()) return offset;
  size_t at = std::min(*hint, runs.size() - 1);
  if (runs[at].begin > offset) at = 0;
  // Offsets mostly ascend: the next runs are tried before all.
  for (int step = 0; step < 8 && at + 1 < runs.size() && runs[at + 1].begin <= offset; ++step) ++at;
  if (at + 1 < runs.size() && runs[at + 1].begin <= offset) {
    const auto after =
        std::upper_bound(runs.begin() + static_cast<ptrdiff_t>(at), runs.end(), offset,
                         [](size_t value, const OffsetRun& run) { return value < run.begin; });
    at = static_cast<size_t>(after - runs.begin()) - 1;
  }
  *hint = at;
  return runs[at].flat ? runs[at].original : runs[at].original + (offset - runs[at].begin);
}

void ComposeRuns(const OffsetRuns& inner, OffsetRuns* runs) {
  if (inner.empty()) return;
  if (runs->empty()) {
    *runs = inner;
    return;
  }
  OffsetRuns out;
  size_t hint = 0;
  for (size_t i = 0; i < runs->size(); ++i) {
    const OffsetRun& run = (*runs)[i];
    const size_t original = OriginalOffset(inner, run.original, &hint);
    if (run.flat) {
      out.push_back({run.begin, original, true});
      continue;
    }
    // A copied run takes over the runs that it is a copy of.
    out.push_back({run.begin, original, inner[hint].flat});
    const size_t end = i + 1 < runs->size() ? (*runs)[i + 1].begin - run.begin + run.original
                                            : static_cast<size_t>(-1);
    for (size_t next = hint + 1; next < inner.size() && inner[next].begin < end; ++next) {
      out.push_back(
          {run.begin + (inner[next].begin - run.original), inner[next].original, inner[next].flat});
    }
  }
  *runs = std::move(out);
}

void RunWriter::Begin(size_t original, bool flat) {
  if (!runs_->empty()) {
    const OffsetRun& last = runs_->back();
    const size_t follows = flat ? last.original : last.original + (text_->size() - last.begin);
    if (last.flat == flat && follows == original) return;
  }
  runs_->push_back({text_->size(), original, flat});
}

}  // namespace megatrain
