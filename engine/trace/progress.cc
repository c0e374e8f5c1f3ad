#include "engine/trace/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "engine/trace/progress_text.h"

namespace megatrain {
namespace {

// The weight of the newest step in the mean: about the last ten count.
constexpr double kNewStepWeight = 0.1;

int TerminalWidth(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

ProgressOptions ProgressOptionsFor(FILE* file) {
  ProgressOptions options;
  const int fd = ::fileno(file);
  const char* const term = std::getenv("TERM");
  options.is_terminal =
      ::isatty(fd) == 1 && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
  options.width = [fd] { return TerminalWidth(fd); };
  options.now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return options;
}

Progress::Progress(FILE* file, ProgressOptions options)
    : file_(file), options_(std::move(options)) {}

Progress::~Progress() {
  if (bar_shown_) std::fputc('\n', file_);
  std::fflush(file_);
}

void Progress::Started(int64_t first_step, int64_t total_steps) {
  first_step_ = first_step;
  total_steps_ = total_steps;
  last_step_time_ = options_.now();
}

double Progress::SecondsLeft(int64_t step) const {
  return step_seconds_ * static_cast<double>(std::max<int64_t>(total_steps_ - step, 0));
}

void Progress::ClearBar() {
  if (!bar_shown_) return;
  std::fputs("\r\033[K", file_);  // to the line's start; erase to its end
  bar_shown_ = false;
}

void Progress::DrawBar() {
  const std::string line =
      ProgressBarLine(record_, total_steps_, SecondsLeft(record_.step), options_.width());
  std::fprintf(file_, "\r%s\033[K", line.c_str());
  bar_shown_ = true;
}

void Progress::Step(const StepRecord& record) {
  const double now = options_.now();
  const double seconds = now - last_step_time_;
  // The first step also warms caches and makes primitives: the second begins the mean afresh.
  if (record.step <= first_step_ + 1) {
    step_seconds_ = seconds;
  } else {
    step_seconds_ += kNewStepWeight * (seconds - step_seconds_);
  }
  last_step_time_ = now;
  const bool first = !has_record_;
  record_ = record;
  has_record_ = true;
  if (options_.is_terminal) {
    if (record.eval_loss.has_value()) {
      ClearBar();
      std::fprintf(file_, "step %lld: %s\n", static_cast<long long>(record.step),
                   EvalLossText(record).c_str());
    }
    DrawBar();
  } else if (first || record.step == total_steps_ || record.eval_loss.has_value() ||
             now - last_log_time_ >= options_.log_seconds) {
    std::fprintf(file_, "%s\n",
                 ProgressLogLine(record, total_steps_, SecondsLeft(record.step)).c_str());
    last_log_time_ = now;
  }
  std::fflush(file_);
}

void Progress::Message(const std::string& line) {
  ClearBar();
  std::fprintf(file_, "%s\n", line.c_str());
  if (options_.is_terminal && has_record_) DrawBar();
  std::fflush(file_);
}

}  // namespace megatrain
