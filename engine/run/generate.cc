// Text from a model: its tiles streamed as in training, the whole prefix computed anew for each
// token.
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/sequences/batch.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/data/sequences/packing.h"
#include "engine/engine.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_weights.h"
#include "engine/host/session.h"
#include "engine/memory/host_pool.h"
#include "engine/run/trainer.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace megatrain {
namespace {

Batch OneSequence(const std::vector<int32_t>& ids) {
  const Sequence sequence = WholeSequence(ids);
  return MakeBatch(/*step=*/1, {&sequence, 1}, /*sequences_per_micro_batch=*/1);
}

// temperature 0: the likeliest token, the lowest id of equals.
int32_t Sample(const std::vector<float>& logits, double temperature, std::mt19937_64& random) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> weights(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += weights[i] = std::exp((static_cast<double>(logits[i]) - *best) / temperature);
  }
  double left = sum * static_cast<double>(random() >> 11) * 0x1p-53;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best - logits.begin());
}

// The largest prefix of `text` that does not end inside a UTF-8 character.
size_t WholeCharacters(const std::string& text) {
  size_t end = text.size();
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const unsigned char byte = text[text.size() - back];
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back) end = text.size() - back;
    break;
  }
  return end;
}

}  // namespace

absl::Status Generate(EngineHost& host, const std::string& path, const GenerateOptions& options,
                      const std::function<void(const std::string& text)>& emit) {
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(path));
  const ModelLayout layout = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                      OpenTokenizer(path, options.tokenizer));
  // As before a text of the training data. What goes behind one would end it.
  MT_ASSIGN_OR_RETURN(const SpecialIds around, IdsAroundText(*tokenizer, options.add_bos));
  std::vector<int32_t> ids = around.before;
  MT_RETURN_IF_ERROR(tokenizer->Encode(options.prompt, &ids));
  if (ids.empty() && tokenizer->bos_id() >= 0) ids.push_back(tokenizer->bos_id());
  if (ids.empty()) {
    return absl::InvalidArgumentError("--prompt: the model needs at least one token to go on from");
  }
  // Before the model is loaded; the trainer checks again whatever it is given.
  if (const absl::Status known = CheckTokenIds(OneSequence(ids), config.vocabulary); !known.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt: ", known.message()));
  }
  const int64_t length = static_cast<int64_t>(ids.size()) + options.tokens;
  if (length > config.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens: ", ids.size(), " tokens of prompt and ", options.tokens,
                     " new ones are more than the model's ", config.max_positions, " positions"));
  }

  const JobSpec spec;
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Session> session, host.OpenSession(spec.engine));
  MT_ASSIGN_OR_RETURN(const MemoryBudget budget, host.BudgetNow());
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<HfWeights> weights, HfWeights::Open(path, layout));
  MT_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanGeneration(layout, weights->ExactDType(), length,
                                                            session->device->kernels(), budget));
  if (!plan.fits) {
    return absl::ResourceExhaustedError(absl::StrCat("the model does not fit\n", plan.Table()));
  }
  MT_ASSIGN_OR_RETURN(HostPool* const pool, host.Pool(plan.pool_bytes, nullptr, nullptr));
  MT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Trainer> trainer,
      Trainer::Create(spec, plan, session->device.get(), session->updater.get(), pool));
  for (int tile = 0; tile < layout.tile_count(); ++tile) {
    MT_RETURN_IF_ERROR(weights->LoadTile(tile, trainer->tiles()[tile]));
  }

  const std::vector<int32_t> ends = tokenizer->end_ids();
  std::mt19937_64 random(options.seed);
  // What is new is told from the whole: a tokenizer may decode a text's first token differently.
  size_t emitted = tokenizer->Decode(ids, /*skip_special=*/true).size();
  for (int64_t i = 0; i < options.tokens; ++i) {
    MT_ASSIGN_OR_RETURN(const std::vector<float> logits,
                        trainer->Logits(OneSequence(ids), static_cast<int64_t>(ids.size()) - 1));
    const int32_t token = Sample(logits, options.temperature, random);
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    ids.push_back(token);
    const std::string text = tokenizer->Decode(ids, /*skip_special=*/true);
    const size_t end = WholeCharacters(text);
    if (end > emitted) {
      emit(text.substr(emitted, end - emitted));
      emitted = end;
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
