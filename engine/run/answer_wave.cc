#include "engine/run/answer_wave.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/generation/generation_batch.h"

namespace megatrain {
namespace {

// A prompt and the state of its answer.
struct Line {
  Answer answer;
  std::mt19937_64 random;
  int32_t first_row;
  int32_t state_row;

  CachedSequence cached() const { return {answer.ids(), first_row, state_row}; }
};

absl::StatusOr<std::vector<Line>> BeginWave(const PipelineDimensions& d, const Tokenizer& tokenizer,
                                            const AnswerSettings& settings,
                                            absl::Span<const EncodedPrompt> prompts) {
  std::vector<Line> lines;
  int64_t rows = 0;
  for (const EncodedPrompt& prompt : prompts) {
    const int64_t tokens = static_cast<int64_t>(prompt.ids.size());
    const bool room = rows + tokens + settings.tokens <= d.cache_rows &&
                      tokens <= d.micro_batch_tokens &&
                      tokens + settings.tokens <= d.sequence_length;
    if (!room && lines.empty()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          tokens, " tokens of prompt and ", settings.tokens, " new ones do not fit: there is room ",
          "for ", std::min(d.cache_rows, d.sequence_length), " tokens together, and for ",
          d.micro_batch_tokens, " of a prompt"));
    }
    if (!room || std::ssize(lines) == d.cache_sequences) break;
    lines.push_back({Answer(tokenizer, settings.stop, prompt.ids, settings.tokens),
                     std::mt19937_64(prompt.seed.value_or(settings.seed)),
                     static_cast<int32_t>(rows), static_cast<int32_t>(lines.size())});
    rows += tokens + settings.tokens;
  }
  return lines;
}

std::vector<CachedSequence> Cached(absl::Span<Line* const> lines) {
  std::vector<CachedSequence> sequences;
  for (const Line* const line : lines) sequences.push_back(line->cached());
  return sequences;
}

}  // namespace

absl::StatusOr<std::vector<GeneratedText>> AnswerWave(
    Trainer& trainer, ThreadPool& pool, const Tokenizer& tokenizer, const AnswerSettings& settings,
    absl::Span<const EncodedPrompt> prompts, absl::FunctionRef<absl::Status()> go_on,
    const std::function<void(size_t prompt, const std::string& text)>& piece) {
  const PipelineDimensions& d = trainer.dimensions();
  const size_t vocabulary = static_cast<size_t>(d.layout->model.vocabulary);
  MT_ASSIGN_OR_RETURN(std::vector<Line> wave, BeginWave(d, tokenizer, settings, prompts));
  std::vector<Line*> lines;  // whose answers have not ended
  for (Line& line : wave) lines.push_back(&line);

  Batch batch = PromptBatch(Cached(lines), d.micro_batch_tokens);
  std::vector<TokenRange> wanted;
  for (const Line* const line : lines) {
    const int64_t tokens = static_cast<int64_t>(line->answer.ids().size());
    wanted.push_back({tokens - 1, tokens});
  }
  for (;;) {
    MT_RETURN_IF_ERROR(go_on());
    MT_ASSIGN_OR_RETURN(const std::vector<float> logits, trainer.Logits(batch, wanted));
    // Row i is that of line i: micro-batches that are not filled come last.
    std::vector<int32_t> next(lines.size());
    pool.ParallelFor(static_cast<int64_t>(lines.size()), [&](int64_t i) {
      const size_t at = static_cast<size_t>(i);
      next[at] = SampleToken(absl::MakeConstSpan(logits).subspan(at * vocabulary, vocabulary),
                             settings.sampling, lines[at]->random);
    });
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string text = lines[i]->answer.Take(next[i]);
      if (piece && !text.empty()) piece(static_cast<size_t>(lines[i] - wave.data()), text);
    }
    std::erase_if(lines, [](const Line* line) { return line->answer.ended(); });
    if (lines.empty()) break;
    batch = LastTokensBatch(Cached(lines), d.micro_batch_tokens);
    wanted.clear();
    for (const int64_t tokens : batch.micro_batch_tokens) wanted.push_back({0, tokens});
  }

  std::vector<GeneratedText> answers;
  for (size_t i = 0; i < wave.size(); ++i) {
    const Answer& answer = wave[i].answer;
    answers.push_back({answer.text(), static_cast<int64_t>(prompts[i].ids.size()), answer.tokens(),
                       answer.stopped()});
  }
  return answers;
}

}  // namespace megatrain
