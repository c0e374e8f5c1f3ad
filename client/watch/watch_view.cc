#include "client/watch/watch_view.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output/proto_time.h"
#include "client/watch/loss_plot.h"

namespace megatrain::client {
namespace {

constexpr int kLabelWidth = 9;  // "pipeline" and a space: the heads of lines stand in a column
constexpr int kPlotRowsMax = 14;
constexpr int kPlotRowsMin = 4;
constexpr size_t kLogRowsMax = 4;

// `cells` columns, filled from the left; in UTF-8 by eighths.
std::string Bar(double fraction, int cells, Charset charset) {
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0;
  if (charset == Charset::kAscii) {
    const int full = static_cast<int>(fraction * cells);
    return absl::StrCat("[", std::string(full, '#'), std::string(cells - full, '.'), "]");
  }
  static const char* const kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(fraction * cells * 8);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  return absl::StrCat("▕", PadRight(bar, cells), "▏");
}

std::string Label(const char* name) { return PadRight(name, kLabelWidth); }

class Drawing {
 public:
  Drawing(const WatchState& state, const ViewSize& size, absl::Time now, Charset charset)
      : state_(state), size_(size), now_(now), charset_(charset) {}

  std::vector<std::string> Draw() {
    if (!state_.job.has_value()) return {Fit("connecting ...")};
    std::vector<std::string> head = Head();
    Append(Numbers(), &head);
    std::vector<std::string> lanes = LaneBars();
    std::vector<std::string> tail = Memory();
    std::vector<std::string> log = Log(kLogRowsMax);

    const auto rows_of = [](const std::vector<std::string>& lines) {
      return static_cast<int>(lines.size());
    };
    const auto free = [&] {
      return size_.rows - rows_of(head) - rows_of(lanes) - rows_of(tail) - rows_of(log);
    };
    while (free() < kPlotRowsMin && !log.empty()) log = Log(log.size() - 1);
    if (free() < kPlotRowsMin) lanes = LaneWords();
    const std::vector<std::string> plot =
        PlotLoss(state_.losses, size_.columns, std::min(free(), kPlotRowsMax), charset_);

    std::vector<std::string> lines = std::move(head);
    for (const auto& part : {plot, lanes, tail, log}) Append(part, &lines);
    if (rows_of(lines) > size_.rows) lines.resize(std::max(size_.rows, 0));
    return lines;
  }

 private:
  static void Append(std::vector<std::string> more, std::vector<std::string>* lines) {
    lines->insert(lines->end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
  }
  std::string Fit(absl::string_view line) const { return Ellipsize(line, size_.columns, charset_); }
  std::vector<std::string> Flow(const std::vector<std::string>& words, int indent) const {
    return FlowWords(words, size_.columns, indent, "  ", charset_);
  }

  // Who, what state, why; the bar.
  std::vector<std::string> Head() const {
    const v1::Job& job = *state_.job;
    std::vector<std::string> words = {Printable(job.display_name()), Printable(job.name()),
                                      v1::Job::State_Name(job.state())};
    if (job.attempt_count() > 1) words.push_back(absl::StrCat("attempt ", job.attempt_count()));
    std::vector<std::string> lines = Flow(words, 2);
    if (state_.job_stream_lost.has_value()) {
      const absl::Duration left =
          std::max(state_.job_stream_lost->retry_at - now_, absl::ZeroDuration());
      lines.push_back(Fit(absl::StrCat("the server is away, trying again in ", DurationText(left),
                                       ": ", Printable(state_.job_stream_lost->why))));
    } else if (const std::string text = SituationText(job, now_); !text.empty()) {
      lines.push_back(Fit(Printable(text)));
    }
    lines.push_back(Progress());
    return lines;
  }

  std::string Progress() const {
    const v1::JobProgress& progress = state_.job->progress();
    const int64_t step = StepOf(state_);
    const int64_t total = progress.total_steps();
    if (total <= 0) return Fit(step > 0 ? absl::StrCat("step ", step) : "no step yet");
    const double fraction = static_cast<double>(step) / static_cast<double>(total);
    std::vector<std::string> words = {absl::StrFormat("%d/%d", step, total),
                                      absl::StrFormat("%d%%", static_cast<int>(100 * fraction))};
    const std::optional<absl::Duration> left = TimeLeft(state_);
    if (left.has_value() && state_.job->state() == v1::Job::RUNNING) {
      words.push_back(absl::StrCat("ETA ", DurationText(*left)));
    }
    std::string text;
    for (const std::string& word : words) {
      const std::string longer = text.empty() ? word : absl::StrCat(text, "  ", word);
      if (DisplayWidth(longer) > size_.columns) break;
      text = longer;
    }
    // The bar's two ends and a space.
    const int cells = std::min(size_.columns - DisplayWidth(text) - 3, 50);
    if (cells < 4) return Fit(text);
    return absl::StrCat(Bar(fraction, cells, charset_), " ", text);
  }

  std::vector<std::string> Numbers() const {
    if (!state_.metrics.has_value()) return {};
    const v1::StepMetrics& metrics = *state_.metrics;
    std::vector<std::string> losses = {
        absl::StrCat(Label("loss"), FormatLoss(metrics.loss())),
        absl::StrFormat("gradient norm %.3g", metrics.gradient_norm()),
        absl::StrFormat("lr %.3g", metrics.learning_rate())};
    if (!state_.evaluations.empty()) {
      const LossPoint& last = state_.evaluations.back();
      losses.insert(losses.begin() + 1,
                    absl::StrFormat("eval loss %s at step %d", FormatLoss(last.loss), last.step));
    }
    std::vector<std::string> lines = Flow(losses, kLabelWidth);
    Append(Flow({absl::StrCat(Label("speed"), FormatRate(metrics.tokens_per_second()), " tokens/s"),
                 absl::StrFormat("%.3g s a step", metrics.step_seconds()),
                 absl::StrCat(FormatRate(metrics.model_flops_per_second()), "FLOP/s")},
                kLabelWidth),
           &lines);
    const std::string slowest = SlowestRankText(metrics, *state_.job);
    if (!slowest.empty()) lines.push_back(Fit(Printable(absl::StrCat(Label("slowest"), slowest))));
    return lines;
  }

  struct LaneShare {
    const char* name;
    double seconds;
    double fraction;
  };
  std::vector<LaneShare> Lanes() const {
    if (!state_.metrics.has_value()) return {};
    const v1::LaneSeconds& busy = state_.metrics->lane_busy_seconds();
    const double step = state_.metrics->step_seconds();
    const auto lane = [step](const char* name, double seconds) {
      return LaneShare{name, seconds, step > 0 ? seconds / step : 0};
    };
    std::vector<LaneShare> lanes = {lane("h2d", busy.h2d()), lane("compute", busy.compute()),
                                    lane("d2h", busy.d2h()), lane("update", busy.update())};
    if (busy.device_update() > 0) lanes.push_back(lane("gpu adam", busy.device_update()));
    if (busy.collective() > 0) lanes.push_back(lane("exchange", busy.collective()));
    lanes.push_back(lane("io", busy.io()));
    return lanes;
  }
  static std::string Percent(double fraction) {
    return std::isfinite(fraction) ? absl::StrFormat("%.0f%%", 100 * fraction) : "--";
  }
  std::vector<std::string> LaneBars() const {
    std::vector<std::string> lines;
    for (const LaneShare& lane : Lanes()) {
      const std::string text = absl::StrFormat("%4s  %.3g s", Percent(lane.fraction), lane.seconds);
      // The width of the longest text is kept free, so that the bars end in a column.
      const int cells = std::min(size_.columns - kLabelWidth - 3 - 16, 50);
      if (cells < 4) return LaneWords();
      lines.push_back(
          Fit(absl::StrCat(Label(lane.name), Bar(lane.fraction, cells, charset_), " ", text)));
    }
    return lines;
  }
  std::vector<std::string> LaneWords() const {
    std::vector<std::string> words;
    for (const LaneShare& lane : Lanes()) {
      words.push_back(absl::StrCat(words.empty() ? Label("lanes") : "", lane.name, " ",
                                   Percent(lane.fraction)));
    }
    return Flow(words, kLabelWidth);
  }

  std::vector<std::string> Memory() const {
    std::vector<std::string> words;
    if (state_.node.has_value() && state_.node->host_pool().size_bytes() > 0) {
      const v1::HostPool& pool = state_.node->host_pool();
      words.push_back(
          absl::StrCat("pool ", SizeText(pool.used_bytes()), " of ", SizeText(pool.size_bytes())));
    }
    if (state_.metrics.has_value()) {
      words.push_back(absl::StrCat("job ", SizeText(state_.metrics->host_bytes())));
      words.push_back(absl::StrCat("device ", SizeText(state_.metrics->device_bytes())));
    }
    const int64_t checkpoint = state_.job->progress().checkpoint_step();
    if (checkpoint > 0) words.push_back(absl::StrCat("saved at step ", checkpoint));
    if (words.empty()) return {};
    words.front() = absl::StrCat(Label("memory"), words.front());
    return Flow(words, kLabelWidth);
  }

  // The last `rows` lines of the log, as far as there are any.
  std::vector<std::string> Log(size_t rows) const {
    std::vector<std::string> lines;
    const size_t shown = std::min(state_.log.size(), rows);
    for (size_t i = state_.log.size() - shown; i < state_.log.size(); ++i) {
      lines.push_back(
          Fit(absl::StrCat(Label(lines.empty() ? "log" : ""), Printable(state_.log[i]))));
    }
    return lines;
  }

  const WatchState& state_;
  const ViewSize& size_;
  const absl::Time now_;
  const Charset charset_;
};

}  // namespace

std::vector<std::string> DrawWatch(const WatchState& state, const ViewSize& size, absl::Time now,
                                   Charset charset) {
  return Drawing(state, size, now, charset).Draw();
}

std::string SituationText(const v1::Job& job, absl::Time now) {
  std::vector<std::string> parts;
  if (job.state() == v1::Job::QUEUED && job.has_queue()) {
    if (job.queue().position() > 0) {
      parts.push_back(absl::StrCat("number ", job.queue().position(), " in the queue"));
    }
    if (!job.queue().text().empty()) parts.push_back(job.queue().text());
    if (job.queue().has_predicted_start_time()) {
      const absl::Duration wait = ToTime(job.queue().predicted_start_time()) - now;
      if (wait > absl::ZeroDuration()) {
        parts.push_back(absl::StrCat("starts in about ", DurationText(wait)));
      }
    }
  }
  // Of a job that goes its way the text says only how it came to it.
  const bool goes_its_way = job.state() == v1::Job::PREPARING || job.state() == v1::Job::RUNNING ||
                            job.state() == v1::Job::SUCCEEDED;
  if (!goes_its_way && !job.reason_text().empty()) parts.push_back(job.reason_text());
  std::string text;
  for (const std::string& part : parts) absl::StrAppend(&text, text.empty() ? "" : "; ", part);
  return text;
}

std::string SlowestRankText(const v1::StepMetrics& metrics, const v1::Job& job) {
  if (metrics.ranks() < 2) return "";
  const int64_t rank = metrics.slowest_rank();
  const bool named = job.devices_size() == metrics.ranks() && rank >= 0 && rank < metrics.ranks();
  return absl::StrCat(
      "rank ", rank, named ? absl::StrCat(" (", job.devices(static_cast<int>(rank)), ")") : "",
      absl::StrFormat(", compute %.3g s, mean %.3g s", metrics.lane_busy_seconds().compute(),
                      metrics.lane_mean_seconds().compute()));
}

std::string ClosingLine(const v1::Job& job) {
  std::string line = absl::StrCat(Printable(job.display_name()), " ");
  if (IsEnded(job.state())) {
    absl::StrAppend(&line, "has ",
                    job.state() == v1::Job::SUCCEEDED ? "succeeded"
                    : job.state() == v1::Job::FAILED  ? "failed"
                                                      : "been cancelled");
  } else {
    absl::StrAppend(&line, "is ", v1::Job::State_Name(job.state()), " and goes on");
  }
  if (job.progress().total_steps() > 0) {
    absl::StrAppend(&line, " at step ", job.progress().step(), " of ",
                    job.progress().total_steps());
  }
  if (job.has_start_time() && job.has_end_time()) {
    absl::StrAppend(&line, ", ", DurationText(ToTime(job.end_time()) - ToTime(job.start_time())),
                    " after its start");
  }
  if ((job.state() == v1::Job::FAILED || job.state() == v1::Job::CANCELLED) &&
      !job.reason_text().empty()) {
    absl::StrAppend(&line, " (", Printable(job.reason_text()), ")");
  }
  return absl::StrCat(line, ": ", Printable(job.name()));
}

}  // namespace megatrain::client
