// Answers prompts with a trainer's model, in waves. The prompts of a wave go through the model
// together. One pass for the prompts gives the first token of each answer, and each further pass
// one more.
#ifndef MEGATRAIN_ENGINE_RUN_ANSWER_WAVE_H_
#define MEGATRAIN_ENGINE_RUN_ANSWER_WAVE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/thread_pool.h"
#include "engine/engine.h"
#include "engine/generation/answer.h"
#include "engine/generation/prompt_encoder.h"
#include "engine/generation/sampler.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// Settings for the answers to prompts.
struct AnswerSettings {
  int64_t tokens = 0;  // the most of each answer; at least 1
  SamplingOptions sampling;
  uint64_t seed = 0;  // of prompts without their own
  StopRules stop;
};

// Answers the first of `prompts`: as many as the trainer's plan has room for in its key-value cache
// and micro-batches, at least one. Returns their answers, in the order of the prompts. `pool` runs
// the sampling. Calls go_on() before each pass over the model and returns its error. `piece` is as
// in GenerateSink and counts from the first of `prompts`; it may be null.
//
// Returns ResourceExhausted if the first prompt and its answer have no room, and the errors of
// Trainer::Logits. REQUIRES: neither `prompts` nor a prompt is empty, settings.tokens >= 1, the
// trainer's plan has a key-value cache, trainer.in_flight() == 0, and trainer.holds_device() when
// go_on() returns OK.
absl::StatusOr<std::vector<GeneratedText>> AnswerWave(
    Trainer& trainer, ThreadPool& pool, const Tokenizer& tokenizer, const AnswerSettings& settings,
    absl::Span<const EncodedPrompt> prompts, absl::FunctionRef<absl::Status()> go_on,
    const std::function<void(size_t prompt, const std::string& text)>& piece);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_ANSWER_WAVE_H_
