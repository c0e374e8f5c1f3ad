#include "engine/run/trainer.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/model/rope.h"

namespace megatrain {
namespace {

void CountLinkBytes(const Schedule& schedule, StepRecord& record) {
  for (const Op& op : schedule.ops) {
    record.d2h_bytes += op.d2h_bytes + (op.lane == Lane::kD2H ? op.bytes : 0);
    record.h2d_bytes += op.h2d_bytes + (op.lane == Lane::kH2D ? op.bytes : 0);
  }
}

}  // namespace

double RouterAuxiliaryLoss(const JobSpec& spec, const ModelDescription& model) {
  if (spec.training.router_auxiliary_loss.has_value()) return *spec.training.router_auxiliary_loss;
  double coefficient = 0;
  for (const LayerDescription& layer : model.layers) {
    coefficient = std::max(coefficient, layer.experts.auxiliary_loss);
  }
  return coefficient;
}

Rewards RewardsOf(const RewardSums& sums) {
  const double pairs = static_cast<double>(sums.pairs);
  return {.chosen = sums.chosen / pairs,
          .rejected = sums.rejected / pairs,
          .margins = (sums.chosen - sums.rejected) / pairs,
          .accuracies = static_cast<double>(sums.preferred) / pairs};
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const JobSpec& spec,
                                                         const MemoryPlan& plan, Device* device,
                                                         AdamWUpdater* updater, HostPool* pool) {
  MemoryPlan here = plan;
  if (!device->KernelsReadHost()) here.dimensions.shape.embedding_from_host = false;
  std::unique_ptr<Trainer> trainer(new Trainer(spec, here));
  const PipelineDimensions& d = trainer->plan_.dimensions;
  trainer->device_ = device;
  trainer->kernels_ = &device->kernels();
  trainer->last_matmul_seconds_ = trainer->kernels_->MatMulSeconds();
  MT_RETURN_IF_ERROR(trainer->TakeDevice());
  MT_ASSIGN_OR_RETURN(trainer->host_buffers_, LeaseHostBuffers(d, *pool));
  for (int i = 0; i < d.shape.tiles(); ++i) {
    const TileLayout* layout = &d.layout->tiles[i];
    void* block = trainer->host_buffers_.tiles[i].data();
    if (d.training) {
      trainer->tiles_.push_back(MakeTile(layout, d.dtype, block));
    } else {
      Tile tile;  // weights alone
      tile.layout = layout;
      tile.weight_dtype = d.dtype;
      tile.weights = block;
      trainer->tiles_.push_back(tile);
    }
  }
  StepRunnerParts parts;
  parts.dimensions = &d;
  parts.device = device;
  parts.attention = spec.engine.attention;
  parts.preference = spec.training.dpo;
  parts.updater = updater;
  parts.device_buffers = &trainer->device_buffers_;
  parts.host_buffers = &trainer->host_buffers_;
  parts.tiles = &trainer->tiles_;
  parts.host_nodes = &pool->nodes();
  trainer->runner_ = std::make_unique<StepRunner>(parts);
  MT_ASSIGN_OR_RETURN(trainer->executor_, Executor::Create(device, trainer->runner_.get()));
  return trainer;
}

Trainer::~Trainer() = default;

absl::Status Trainer::TakeDevice() {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory, device_->Allocate(plan_.arena_bytes));
  DeviceArena arena(memory->data(), plan_.arena_bytes);
  MT_ASSIGN_OR_RETURN(device_buffers_, ReserveDeviceBuffers(plan_.dimensions, *kernels_, arena));
  arena.Seal();
  MT_RETURN_IF_ERROR(UploadRopeTables());
  pipeline_state_ = {};  // what the buffers held is gone
  arena_memory_ = std::move(memory);
  return absl::OkStatus();
}

void Trainer::ReleaseDevice() {
  device_buffers_ = {};
  arena_memory_ = nullptr;
}

absl::Status Trainer::UploadRopeTables() {
  const PipelineDimensions& d = plan_.dimensions;
  // Piece by piece: the tables of a million positions are half a gigabyte, which the plan does not
  // count on the host.
  constexpr int64_t kPositions = 4096;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_->CreateStream(StreamUse::kCopy));
  for (size_t i = 0; i < device_buffers_.ropes.size(); ++i) {
    const RopeConfig& rope = d.layout->model.ropes[i];
    const RopeTable& table = device_buffers_.ropes[i];
    const int64_t half = rope.rotary_dim / 2;
    std::vector<float> cosine(kPositions * half), sine(kPositions * half);
    for (int64_t begin = 0; begin < d.sequence_length; begin += kPositions) {
      const int64_t end = std::min(d.sequence_length, begin + kPositions);
      const int64_t bytes = (end - begin) * half * int64_t{sizeof(float)};
      RopeTables(rope, d.sequence_length, begin, end, cosine.data(), sine.data());
      MT_RETURN_IF_ERROR(
          device_->Upload(*stream, table.cosine + begin * half, cosine.data(), bytes));
      MT_RETURN_IF_ERROR(device_->Upload(*stream, table.sine + begin * half, sine.data(), bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::Submit(const Batch& batch, double learning_rate,
                             absl::Span<const double> group_rates) {
  MT_RETURN_IF_ERROR(executor_->status());
  Pending pending;
  pending.slot = pipeline_state_.next_step_slot;
  MT_RETURN_IF_ERROR(runner_->PrepareBatch(pending.slot, batch));
  StepState& state = runner_->state(pending.slot);
  state.max_gradient_norm = spec_.optimizer.max_gradient_norm;
  state.adamw.step = batch.step;
  state.adamw.learning_rate = learning_rate;
  state.adamw.beta1 = spec_.optimizer.beta1;
  state.adamw.beta2 = spec_.optimizer.beta2;
  state.adamw.epsilon = spec_.optimizer.epsilon;
  state.adamw.weight_decay = spec_.optimizer.weight_decay;
  state.router_auxiliary_loss = router_auxiliary_loss_;
  for (size_t i = 0; i < group_rates.size(); ++i) {
    state.adamw.groups.push_back({group_rates[i], spec_.optimizer.groups[i].weight_decay.value_or(
                                                      spec_.optimizer.weight_decay)});
  }
  pending.record.step = batch.step;
  pending.record.learning_rate = learning_rate;
  pending.record.tokens = batch.predictions;
  pending.record.input_tokens = batch.input_tokens;
  pending.record.host_bytes = plan_.pool_bytes;
  pending.record.device_bytes = plan_.device_bytes;
  pipeline_state_.rows_first = runner_->OfferRows(pending.slot);
  Schedule schedule =
      BuildTrainingStep(plan_.dimensions.shape, state.micro_batch_tokens, pipeline_state_);
  CountLinkBytes(schedule, pending.record);
  pending.ticket = executor_->Submit(std::move(schedule));
  pending_.push_back(std::move(pending));
  return absl::OkStatus();
}

bool Trainer::Withdraw(bool during_backward) {
  if (!executor_->Withdraw(pending_.back().ticket, during_backward)) return false;
  withdrawn_.push_back(std::move(pending_.back().ticket));
  pending_.pop_back();
  pipeline_state_ = {};  // buffers hold what they happened to be given
  return true;
}

absl::Status Trainer::SettleWithdrawn() {
  for (; !withdrawn_.empty(); withdrawn_.pop_back()) {  // in the order of their submission
    MT_RETURN_IF_ERROR(executor_->Settle(withdrawn_.back()));
  }
  return absl::OkStatus();
}

bool Trainer::AwaitStep(absl::FunctionRef<bool()> interrupted) {
  return executor_->AwaitDone(pending_.front().ticket, interrupted);
}

absl::StatusOr<StepRecord> Trainer::Collect() {
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  MT_ASSIGN_OR_RETURN(const Executor::Timing timing, executor_->Wait(pending.ticket));
  runner_->CollectLoss(pending.slot);
  runner_->CollectNorm(pending.slot);
  const StepState& state = runner_->state(pending.slot);
  StepRecord record = std::move(pending.record);
  record.loss = state.loss_sum / static_cast<double>(state.loss_terms);
  if (state.rewards.pairs > 0) record.rewards = RewardsOf(state.rewards);
  record.gradient_norm = state.gradient_norm;
  if (plan_.dimensions.shape.has_experts()) record.router = state.router.Report();
  record.lane_busy_seconds = timing.busy;
  record.forward_seconds = timing.forward;
  // The next step's forward may have begun: a share moves between neighbours, the sum is right.
  record.matmul_seconds = kernels_->MatMulSeconds() - last_matmul_seconds_;
  last_matmul_seconds_ += record.matmul_seconds;
  // Steps overlap: what counts is the time from the end of the step before.
  record.step_seconds =
      std::chrono::duration<double>(timing.finished - std::max(timing.started, last_finished_))
          .count();
  last_finished_ = timing.finished;
  record.tokens_per_second = static_cast<double>(record.input_tokens) / record.step_seconds;
  record.model_flops_per_second =
      6.0 * static_cast<double>(active_parameters_) * record.tokens_per_second;
  return record;
}

absl::StatusOr<int> Trainer::RunForward(const Batch& batch, LogitsRequest* logits) {
  MT_RETURN_IF_ERROR(executor_->status());
  const int slot = pipeline_state_.next_step_slot;
  MT_RETURN_IF_ERROR(runner_->PrepareBatch(slot, batch));
  StepState& state = runner_->state(slot);
  state.logits = logits;
  const PipelineShape& shape = plan_.dimensions.shape;
  const CacheUse cache = batch.first_rows.empty() ? CacheUse::kNone
                         : batch.continues        ? CacheUse::kAttend
                                                  : CacheUse::kFill;
  auto ticket = executor_->Submit(
      logits != nullptr ? BuildPrediction(shape, state.micro_batch_tokens, cache, pipeline_state_)
                        : BuildEvaluation(shape, state.micro_batch_tokens, pipeline_state_));
  MT_ASSIGN_OR_RETURN(const Executor::Timing timing, executor_->Wait(ticket));
  last_finished_ = timing.finished;
  return slot;
}

absl::StatusOr<double> Trainer::EvaluateLossSum(const Batch& batch, RewardSums* rewards) {
  MT_ASSIGN_OR_RETURN(const int slot, RunForward(batch, nullptr));
  runner_->CollectLoss(slot);
  if (rewards != nullptr) *rewards = runner_->state(slot).rewards;
  return runner_->state(slot).loss_sum;
}

absl::StatusOr<std::vector<double>> Trainer::AnswerLogps(const Batch& batch) {
  MT_ASSIGN_OR_RETURN(const int slot, RunForward(batch, nullptr));
  return runner_->AnswerLogps(slot);
}

absl::StatusOr<std::vector<float>> Trainer::Logits(const Batch& batch,
                                                   const std::vector<TokenRange>& tokens) {
  LogitsRequest request;
  request.tokens = tokens;
  int64_t count = 0;
  for (const TokenRange& range : tokens) count += range.end - range.begin;
  request.logits.resize(count * plan_.dimensions.layout->model.vocabulary);
  MT_RETURN_IF_ERROR(RunForward(batch, &request).status());
  return std::move(request.logits);
}

absl::Span<const float> Trainer::HeldGradient(int tile) const {
  return absl::MakeConstSpan(static_cast<const float*>(host_buffers_.slabs[tile].data()),
                             plan_.dimensions.shape.state_elements(tile));
}

void Trainer::BeginSave(SaveCalls calls) {
  runner_->set_save_calls(std::move(calls));
  save_ticket_ = executor_->Submit(BuildCheckpoint(plan_.dimensions.shape));
}

void Trainer::CommitSave() { save_end_ticket_ = executor_->Submit(BuildCheckpointEnd()); }

bool Trainer::save_done() const {
  return save_end_ticket_ != nullptr && executor_->Done(save_end_ticket_);
}

absl::Status Trainer::AwaitSave() {
  absl::Status status = executor_->Wait(save_ticket_).status();
  // Also after an error, which may be a step's: the end of the save may still run.
  status.Update(executor_->Wait(save_end_ticket_).status());
  save_ticket_ = save_end_ticket_ = nullptr;
  runner_->set_save_calls({});
  return status;
}

}  // namespace megatrain
