#include "engine/trace/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/trace/progress_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

StepRecord Record(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 2.34567;
  record.gradient_norm = 1.5;
  record.learning_rate = 3e-4;
  record.tokens_per_second = 12345;
  return record;
}

TEST(ProgressTextTest, Durations) {
  EXPECT_EQ(FormatDuration(0), "0s");
  EXPECT_EQ(FormatDuration(59.4), "59s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(3599), "59m59s");
  EXPECT_EQ(FormatDuration(3600), "1h00m");
  EXPECT_EQ(FormatDuration(86399), "23h59m");
  EXPECT_EQ(FormatDuration(86400), "1d00h");
  EXPECT_EQ(FormatDuration(200000), "2d07h");
  EXPECT_EQ(FormatDuration(1e9), "11574d01h");
  EXPECT_EQ(FormatDuration(1.1e9), "--");
  EXPECT_EQ(FormatDuration(-1), "--");
  EXPECT_EQ(FormatDuration(NAN), "--");
  EXPECT_EQ(FormatDuration(INFINITY), "--");
}

TEST(ProgressTextTest, Rates) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(987.4), "987");
  EXPECT_EQ(FormatRate(999.6), "1.00k");
  EXPECT_EQ(FormatRate(12345), "12.3k");
  EXPECT_EQ(FormatRate(999999), "1.00M");
  EXPECT_EQ(FormatRate(4.56e6), "4.56M");
  EXPECT_EQ(FormatRate(NAN), "--");
  EXPECT_EQ(FormatRate(-1), "--");
  // Three digits, also where they are rounded up.
  EXPECT_EQ(FormatRate(9994), "9.99k");
  EXPECT_EQ(FormatRate(9996), "10.0k");
  EXPECT_EQ(FormatRate(99940), "99.9k");
  EXPECT_EQ(FormatRate(99960), "100k");
  EXPECT_EQ(FormatRate(1e18), "1000P") << "there is no larger unit";
}

TEST(ProgressTextTest, BarLineAtEightyColumns) {
  EXPECT_EQ(ProgressBarLine(Record(50), 200, 75, 80),
            "[####...............]  50/200  loss 2.3457  lr 3.00e-04  12.3k tok/s  ETA 1m15s");
}

TEST(ProgressTextTest, BarLineFitsEveryWidth) {
  for (int width = 1; width <= 200; ++width) {
    for (int64_t total : {int64_t{1}, int64_t{200}, int64_t{1000000000000}}) {
      const std::string line = ProgressBarLine(Record(total), total, 1e6, width);
      EXPECT_LE(static_cast<int>(line.size()), std::max(width - 1, 1)) << width;
      EXPECT_FALSE(line.empty());
    }
  }
  EXPECT_THAT(ProgressBarLine(Record(200), 200, 0, 200), HasSubstr("[" + std::string(30, '#')));
  // A run continued with fewer steps than it has done.
  EXPECT_THAT(ProgressBarLine(Record(9), 3, 0, 80), HasSubstr("9/3"));
}

TEST(ProgressTextTest, LogLine) {
  StepRecord record = Record(50);
  EXPECT_EQ(ProgressLogLine(record, 200, 75),
            "step 50/200  loss 2.3457  gradient norm 1.500  learning rate 3.000e-04  "
            "12.3k tokens/s  ETA 1m15s");
  record.eval_loss = 2.5;
  EXPECT_THAT(ProgressLogLine(record, 200, 75), HasSubstr("  eval loss 2.5000  ETA"));
  record.eval_losses = {{"chat", 2}, {"code", 3}};
  record.rewards = Rewards{.chosen = 1, .rejected = 0.5, .margins = 0.25, .accuracies = 0.75};
  EXPECT_THAT(ProgressLogLine(record, 200, 75),
              HasSubstr("  reward margin 0.250  accuracy 0.75  "
                        "eval loss 2.5000 (chat 2.0000, code 3.0000)  ETA"));
}

TEST(ProgressTextTest, OfSeveralRanksTheSlowestIsNamed) {
  StepRecord record = Record(50);
  record.lane_busy_seconds.compute = 1.25;
  record.spread = {{.ranks = 4, .slowest = {.compute = 3}, .mean = {.compute = 1}}};
  const std::string text = "slowest: rank 3, compute 1.25 s, mean 1 s";
  EXPECT_THAT(ProgressLogLine(record, 200, 75), HasSubstr("  " + text + "  ETA 1m15s"));
  EXPECT_THAT(ProgressBarLine(record, 200, 75, 160), HasSubstr("ETA 1m15s  " + text));
  EXPECT_EQ(ProgressBarLine(record, 200, 75, 80), ProgressBarLine(Record(50), 200, 75, 80))
      << "there is no room";
}

// Captures what Progress writes.
class Screen {
 public:
  explicit Screen(bool is_terminal) {
    file_ = open_memstream(&text_, &size_);
    ProgressOptions options;
    options.is_terminal = is_terminal;
    options.width = [this] { return width_; };
    options.now = [this] { return now_; };
    progress_ = std::make_unique<Progress>(file_, options);
  }
  ~Screen() {
    progress_.reset();
    std::fclose(file_);
    std::free(text_);
  }
  Progress* progress() { return progress_.get(); }
  void End() { progress_.reset(); }
  void Advance(double seconds) { now_ += seconds; }
  void Resize(int width) { width_ = width; }
  std::string Take() {
    std::fflush(file_);
    const std::string all(text_, size_);
    const std::string fresh = all.substr(taken_);
    taken_ = all.size();
    return fresh;
  }

 private:
  FILE* file_ = nullptr;
  char* text_ = nullptr;
  size_t size_ = 0;
  size_t taken_ = 0;
  double now_ = 100;
  int width_ = 80;
  std::unique_ptr<Progress> progress_;
};

TEST(ProgressTest, AFileIsNoTerminalWhateverTheTerminalIsCalled) {
  ASSERT_EQ(setenv("TERM", "xterm", /*overwrite=*/1), 0);
  FILE* const file = std::fopen("/dev/null", "w");
  ASSERT_NE(file, nullptr);
  const ProgressOptions options = ProgressOptionsFor(file);
  EXPECT_FALSE(options.is_terminal);
  EXPECT_EQ(options.width(), 80);
  const double before = options.now();
  EXPECT_GE(options.now(), before);
  std::fclose(file);
}

TEST(ProgressTest, TerminalRewritesOneLine) {
  Screen screen(true);
  screen.progress()->Message("loading");
  EXPECT_EQ(screen.Take(), "loading\n");
  screen.progress()->Started(1, 10);
  screen.Advance(2);
  screen.progress()->Step(Record(1));
  const std::string bar = screen.Take();
  EXPECT_EQ(bar.front(), '\r');
  EXPECT_THAT(bar, Not(HasSubstr("\n")));
  EXPECT_THAT(bar, HasSubstr(" 1/10 "));
  EXPECT_THAT(bar, HasSubstr("ETA 18s"));
  screen.progress()->Message("checkpoint written");
  EXPECT_EQ(screen.Take(), "\r\033[Kcheckpoint written\n" + bar);
  screen.Resize(30);
  screen.progress()->Step(Record(2));
  EXPECT_LE(screen.Take().size(), 29 + std::string("\r\033[K").size());
  screen.End();
  EXPECT_EQ(screen.Take(), "\n");
}

TEST(ProgressTest, TerminalShowsEvaluationsAboveTheBar) {
  Screen screen(true);
  screen.progress()->Started(1, 10);
  StepRecord record = Record(1);
  record.eval_loss = 2.5;
  screen.progress()->Step(record);
  EXPECT_THAT(screen.Take(), HasSubstr("step 1: eval loss 2.5000\n\r["));
}

TEST(ProgressTest, PipedLinesAreWholeAndRare) {
  Screen screen(false);
  screen.progress()->Started(1, 100);
  std::string text;
  for (int64_t step = 1; step <= 100; ++step) {
    screen.Advance(1);
    screen.progress()->Step(Record(step));
  }
  text = screen.Take();
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(text, HasSubstr("step 1/100  "));
  EXPECT_THAT(text, HasSubstr("step 100/100  "));
  // The first, then one in five seconds.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 21);
  StepRecord record = Record(100);
  record.eval_loss = 1.0;
  screen.progress()->Step(record);
  EXPECT_THAT(screen.Take(), HasSubstr("eval loss 1.0000"));
  screen.End();
  EXPECT_EQ(screen.Take(), "");
}

TEST(ProgressTest, TimeLeftFollowsRecentSteps) {
  Screen screen(false);
  screen.progress()->Started(1, 1000);
  screen.Advance(100);  // the first step is slow
  screen.progress()->Step(Record(1));
  screen.Take();
  for (int64_t step = 2; step <= 100; ++step) {
    screen.Advance(6);
    screen.progress()->Step(Record(step));
  }
  EXPECT_THAT(screen.Take(), HasSubstr("step 100/1000  loss 2.3457  gradient norm 1.500  "
                                       "learning rate 3.000e-04  12.3k tokens/s  ETA 1h30m\n"));
}

TEST(ProgressTest, AnEvaluationClearsTheBarThatIsThere) {
  Screen screen(true);
  screen.progress()->Started(1, 10);
  screen.progress()->Step(Record(1));
  screen.Take();
  StepRecord record = Record(2);
  record.eval_loss = 2.5;
  screen.progress()->Step(record);
  EXPECT_THAT(screen.Take(), StartsWith("\r\033[Kstep 2: eval loss 2.5000\n\r["));
}

TEST(ProgressTest, PipedMessagesStandAlone) {
  Screen screen(false);
  screen.progress()->Started(1, 10);
  screen.progress()->Step(Record(1));
  screen.Take();
  screen.progress()->Message("checkpoint written");
  EXPECT_EQ(screen.Take(), "checkpoint written\n");
}

TEST(ProgressTest, TheTimeBetweenPipedLinesBeginsAnewWithEach) {
  Screen screen(false);
  screen.progress()->Started(1, 10);
  screen.progress()->Step(Record(1));
  screen.Advance(3);
  StepRecord evaluated = Record(2);
  evaluated.eval_loss = 2.5;
  screen.progress()->Step(evaluated);
  EXPECT_THAT(screen.Take(), HasSubstr("step 2/10"));
  screen.Advance(3);
  screen.progress()->Step(Record(3));
  EXPECT_EQ(screen.Take(), "") << "six seconds after the first line, three after the second";
  screen.Advance(2);
  screen.progress()->Step(Record(4));
  EXPECT_THAT(screen.Take(), HasSubstr("step 4/10"));
}

// The steps after it tell the time left, and those before no more.
TEST(ProgressTest, APauseIsNoPartOfAStep) {
  Screen screen(true);
  screen.progress()->Started(1, 10);
  for (int64_t step = 1; step <= 3; ++step) {
    screen.Advance(4);
    screen.progress()->Step(Record(step));
  }
  screen.Advance(1000);
  screen.progress()->Started(4, 12);
  screen.Take();
  screen.Advance(2);
  screen.progress()->Step(Record(4));
  EXPECT_THAT(screen.Take(), AllOf(HasSubstr(" 4/12 "), HasSubstr("ETA 16s")));
}

TEST(ProgressTest, NoTimeIsLeftBeyondTheLastStep) {
  Screen screen(true);
  screen.progress()->Started(9, 3);
  screen.Advance(5);
  screen.progress()->Step(Record(9));
  EXPECT_THAT(screen.Take(), HasSubstr("ETA 0s"));
}

TEST(ProgressTest, TimeLeftForgetsTheFirstStepAtTheSecond) {
  for (const int64_t first : {1, 5}) {
    Screen screen(true);
    screen.progress()->Started(first, first + 9);
    screen.Advance(100);
    screen.progress()->Step(Record(first));
    EXPECT_THAT(screen.Take(), HasSubstr("ETA 15m00s"));
    screen.Advance(6);
    screen.progress()->Step(Record(first + 1));
    EXPECT_THAT(screen.Take(), HasSubstr("ETA 48s"));
  }
}

}  // namespace
}  // namespace megatrain
