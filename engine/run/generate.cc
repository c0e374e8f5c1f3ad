// Generate and ReadPrompts of engine.h.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/generation/prompt_encoder.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_weights.h"
#include "engine/host/session.h"
#include "engine/memory/host_pool.h"
#include "engine/run/answer_wave.h"
#include "engine/tokenizer/open_tokenizer.h"
#include "engine/trainer/trainer.h"

namespace megatrain {
namespace {

// Prompts are held in memory, and so are their tokens.
constexpr int64_t kPromptFileBytesMax = int64_t{256} << 20;

absl::StatusOr<std::vector<EncodedPrompt>> EncodePrompts(const GenerateOptions& options,
                                                         const PromptEncoderOptions& encoding) {
  if (options.prompts.empty()) return absl::InvalidArgumentError("there is no prompt to answer");
  PromptEncoder encoder(encoding);
  std::vector<EncodedPrompt> prompts;
  for (size_t i = 0; i < options.prompts.size(); ++i) {
    const std::string place = i < options.prompt_places.size() ? options.prompt_places[i]
                                                               : absl::StrCat("prompt ", i + 1);
    MT_ASSIGN_OR_RETURN(prompts.emplace_back(), encoder.Encode(options.prompts[i], place));
  }
  return prompts;
}

absl::StatusOr<AnswerSettings> SettingsOf(const GenerateOptions& options,
                                          const Tokenizer& tokenizer, int64_t vocabulary) {
  AnswerSettings settings;
  settings.tokens = options.tokens;
  settings.sampling = {options.temperature, options.top_k, options.top_p};
  settings.seed = options.seed;
  settings.stop.ids = tokenizer.end_ids();
  for (const int64_t id : options.stop_ids) {
    if (id < 0 || id >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--stop-id: ", id, " is none of the model's ids, which are 0 to ", vocabulary - 1));
    }
    settings.stop.ids.push_back(static_cast<int32_t>(id));
  }
  for (const std::string& text : options.stop_texts) {
    if (text.empty()) return absl::InvalidArgumentError("--stop: an empty text stops nothing");
    settings.stop.texts.push_back(text);
    // A token without a text of its own is seen by its id. The name of another need not be its
    // text.
    const std::optional<int32_t> id = tokenizer.TokenId(text);
    if (id.has_value() && tokenizer.Decode({*id}, /*skip_special=*/true).empty()) {
      settings.stop.ids.push_back(*id);
    }
  }
  return settings;
}

absl::StatusOr<MemoryPlan> Plan(const EngineHost& host, const GenerateOptions& options,
                                const ModelLayout& layout, DType dtype,
                                const std::vector<EncodedPrompt>& prompts, const Session& session) {
  GenerationNeed need;
  for (const EncodedPrompt& prompt : prompts) {
    need.prompt_tokens.push_back(static_cast<int64_t>(prompt.ids.size()));
  }
  need.answer_tokens = options.tokens;
  const Kernels& kernels = session.first().device->kernels();
  MT_ASSIGN_OR_RETURN(const MemoryBudget budget, host.BudgetNow(session.settings.on));
  MT_RETURN_IF_ERROR(CheckHeadSizes(layout.model, kernels));
  MemoryPlan plan = PlanGeneration(options.engine, layout, dtype, need, kernels, budget);
  if (!plan.fits) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the model does not fit with the key-value cache of one prompt\n", plan.Table()));
  }
  return plan;
}

}  // namespace

absl::Status Generate(EngineHost& host, const std::string& path, const GenerateOptions& options,
                      const GenerateSink& sink) {
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(path, host.files()));
  const ModelLayout layout = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                      OpenTokenizer(path, options.tokenizer, host.files()));
  MT_ASSIGN_OR_RETURN(const std::vector<EncodedPrompt> prompts,
                      EncodePrompts(options, {.tokenizer = tokenizer.get(),
                                              .model_directory = path,
                                              .chat = options.chat,
                                              .chat_template = options.chat_template,
                                              .add_bos = options.add_bos,
                                              .vocabulary = config.vocabulary,
                                              .max_tokens = config.max_positions,
                                              .limit = "the model's positions",
                                              .answer_tokens = options.tokens,
                                              .files = host.files()}));
  MT_ASSIGN_OR_RETURN(const AnswerSettings settings,
                      SettingsOf(options, *tokenizer, config.vocabulary));
  JobSpec spec;
  spec.engine = options.engine;
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Session> session, host.OpenSession(spec.engine));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<HfWeights> weights,
                      HfWeights::Open(path, layout, host.files()));
  MT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                      Plan(host, options, layout, weights->ExactDType(), prompts, *session));
  const int64_t together = plan.dimensions.micro_batches;
  if (sink.say && together < static_cast<int64_t>(prompts.size())) {
    sink.say(absl::StrCat("answers ", together, " of ", prompts.size(),
                          " prompts at a time, whose keys and values the device has room for"));
  }
  MT_ASSIGN_OR_RETURN(HostPool* const pool,
                      host.GetOrReservePool(plan.pool_bytes, nullptr, nullptr));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                      Trainer::Create(spec, plan, session->first().device.get(),
                                      session->first().updater.get(), pool));
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    MT_RETURN_IF_ERROR(weights->LoadTile(tile, trainer->tiles()[tile].front()));
  }
  for (size_t done = 0; done < prompts.size();) {
    std::function<void(size_t, const std::string&)> piece;
    if (sink.piece) {
      piece = [&](size_t prompt, const std::string& text) { sink.piece(done + prompt, text); };
    }
    MT_ASSIGN_OR_RETURN(
        const std::vector<GeneratedText> answers,
        AnswerWave(
            *trainer, *session->first().compute_pool, *tokenizer, settings,
            absl::MakeConstSpan(prompts).subspan(done), [] { return absl::OkStatus(); }, piece));
    for (const GeneratedText& answer : answers) {
      if (sink.answer) sink.answer(done, answer);
      ++done;
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPrompts(const std::string& path, FileSystem* files, GenerateOptions* options) {
  MT_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(files, path, kPromptFileBytesMax));
  const bool records = absl::EndsWith(path, ".jsonl");
  const size_t before = options->prompts.size();
  int64_t number = 0;
  absl::string_view text = content;
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // a byte order mark
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    Prompt& prompt = options->prompts.emplace_back();
    (records ? prompt.record : prompt.text) = std::string(line);
    options->prompt_places.push_back(absl::StrCat(path, ":", number));
  }
  if (options->prompts.size() == before) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": holds no prompt; a prompt is a line of text, or of a .jsonl file a record"));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
