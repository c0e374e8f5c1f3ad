#include "engine/trainer/trainer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "engine/comm/exchange.h"

namespace megatrain {
namespace {

absl::string_view BytesOf(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::vector<double> ValuesIn(absl::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  bytes.copy(reinterpret_cast<char*>(values.data()), values.size() * sizeof(double));
  return values;
}

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
  std::vector<RankParts> ranks(1);
  ranks[0].device = device;
  ranks[0].updater = updater;
  return Create(spec, plan, std::move(ranks), pool);
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const JobSpec& spec,
                                                         const MemoryPlan& plan,
                                                         std::vector<RankParts> ranks,
                                                         HostPool* pool) {
  MemoryPlan here = plan;
  if (!ranks[0].device->KernelsReadHost()) here.dimensions.shape.embedding_from_host = false;
  std::unique_ptr<Trainer> trainer(new Trainer(spec, here));
  absl::Status status = trainer->MakeTiles(ranks, pool);
  if (status.ok()) status = trainer->MakeRanks(ranks, pool);
  if (status.ok()) return trainer;
  // Before the ranks end one after the other: their communicators wait for each other.
  for (const RankParts& parts : ranks) parts.Abort(status);
  return status;
}

absl::Status Trainer::MakeRanks(std::vector<RankParts>& ranks, HostPool* pool) {
  std::function<void(const absl::Status&)> failed;
  if (plan_.dimensions.shape.ranks > 1) {
    failed = [this](const absl::Status& status) { Abort(status); };
  }
  int rank = plan_.dimensions.shape.rank;
  for (RankParts& parts : ranks) {
    MT_ASSIGN_OR_RETURN(
        std::unique_ptr<RankPipeline> pipeline,
        RankPipeline::Create(spec_, plan_, rank++, std::move(parts), pool, &tiles_, failed));
    ranks_.push_back(std::move(pipeline));
  }
  return absl::OkStatus();
}

absl::Status Trainer::MakeTiles(const std::vector<RankParts>& ranks, HostPool* pool) {
  const PipelineDimensions& d = plan_.dimensions;
  std::vector<int> nodes;
  for (const RankParts& parts : ranks) nodes.push_back(parts.device->numa_node());
  MT_ASSIGN_OR_RETURN(tile_leases_, LeaseTiles(d, nodes, *pool));
  auto lease = tile_leases_.begin();
  for (int i = 0; i < d.shape.tiles(); ++i) {
    const TileLayout* layout = &d.layout->tiles[i];
    ProcessTile& parts = tiles_.emplace_back();
    for (int part = 0; part < d.tile_parts(); ++part) {
      void* block = (lease++)->data();
      parts.push_back(d.training ? MakeTile(layout, d.dtype, block, d.held(i, d.shape.rank + part))
                                 : MakeWeightsTile(layout, d.dtype, block));
    }
  }
  return absl::OkStatus();
}

// A rank whose executor is gone would leave the others waiting for it.
Trainer::~Trainer() {
  const bool several = ranks_.size() > 1;
  if (several) Abort(absl::CancelledError("the run ends"));
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) rank->EndOperations();
  // Before memory of any device is freed, which an operation of another rank may still use.
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    if (several) rank->EndExchange();
  }
}

void Trainer::Abort(const absl::Status& cause) {
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) rank->Abort(cause);
  MutexLock lock(&gate_mutex_);
  if (save_gate_ != nullptr) save_gate_->Abort(cause);
}

absl::Status Trainer::status() const {
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    MT_RETURN_IF_ERROR(rank->executor().status());
  }
  return absl::OkStatus();
}

absl::Status Trainer::TakeDevice() {
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    if (const absl::Status status = rank->TakeDevice(); !status.ok()) {
      ReleaseDevice();
      return status;
    }
  }
  return absl::OkStatus();
}

void Trainer::ReleaseDevice() {
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) rank->ReleaseDevice();
}

void Trainer::InvalidateDeviceWeights() {
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) rank->state() = {};
}

void Trainer::Interrupt() {
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) rank->executor().Interrupt();
}

int64_t Trainer::failed_unchanged_step() const {
  if (!one_process()) return 0;
  const int64_t step = ranks_.front()->runner().failed_unchanged_step();
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    if (rank->runner().failed_unchanged_step() != step) return 0;
  }
  return step;
}

absl::StatusOr<int> Trainer::PrepareBatch(const Batch& batch, bool whole) {
  MT_RETURN_IF_ERROR(status());
  // Before the batch is cut, so that the error names the place in all of it.
  MT_RETURN_IF_ERROR(CheckTokenIds(batch, plan_.dimensions.layout->model.vocabulary));
  const int slot = ranks_.front()->state().next_step_slot;
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    StepRunner& runner = rank->runner();
    const int number = rank->dimensions().shape.rank;
    MT_RETURN_IF_ERROR(ranks() == 1 || whole
                           ? runner.PrepareBatch(slot, batch)
                           : runner.PrepareBatch(slot, PartOfBatch(batch, number, ranks())));
  }
  return slot;
}

template <typename Build>
Trainer::Tickets Trainer::SubmitEach(const Build& build) {
  Tickets tickets;
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    tickets.push_back(rank->executor().Submit(build(*rank)));
  }
  return tickets;
}

absl::StatusOr<Executor::Timing> Trainer::WaitEach(const Tickets& tickets,
                                                   std::vector<LaneSeconds>* busy) {
  std::optional<Executor::Timing> all;
  absl::Status status;
  for (size_t rank = 0; rank < tickets.size(); ++rank) {
    const absl::StatusOr<Executor::Timing> timing = ranks_[rank]->executor().Wait(tickets[rank]);
    status.Update(timing.status());
    if (!timing.ok()) {
      // The device may have told of the error just now, and the next rank may wait for this one.
      if (ranks() > 1) Abort(timing.status());
      continue;
    }
    if (!all.has_value()) all = *timing;
    if (busy != nullptr) busy->push_back(timing->busy);
    all->forward = std::max(all->forward, timing->forward);
    all->started = std::min(all->started, timing->started);
    all->finished = std::max(all->finished, timing->finished);
  }
  if (!status.ok()) return status;
  return *all;
}

absl::Status Trainer::Submit(const Batch& batch, double learning_rate,
                             absl::Span<const double> group_rates) {
  Pending pending;
  MT_ASSIGN_OR_RETURN(pending.slot, PrepareBatch(batch, /*whole=*/false));
  pending.record.step = batch.step;
  pending.record.learning_rate = learning_rate;
  pending.record.tokens = batch.predictions;
  pending.record.input_tokens = batch.input_tokens;
  pending.record.host_bytes = plan_.pool_bytes;
  pending.record.device_bytes = plan_.device_bytes;
  pending.tickets = SubmitEach([&](RankPipeline& rank) {
    StepState& state = rank.runner().state(pending.slot);
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
    rank.state().rows_first = rank.runner().RequestRowsFirst(pending.slot);
    Schedule schedule = BuildTrainingStep(rank.dimensions().shape, state.micro_batch_tokens,
                                          rank.state(), state.step_micro_batches);
    CountLinkBytes(schedule, pending.record);
    return schedule;
  });
  pending_.push_back(std::move(pending));
  return absl::OkStatus();
}

bool Trainer::Withdraw(bool during_backward) {
  if (ranks() > 1) return false;
  RankPipeline& rank = *ranks_.front();
  if (!rank.executor().Withdraw(pending_.back().tickets.front(), during_backward)) return false;
  withdrawn_.push_back(std::move(pending_.back().tickets.front()));
  pending_.pop_back();
  rank.state() = {};  // buffers hold what they happened to be given
  return true;
}

absl::Status Trainer::SettleWithdrawn() {
  for (; !withdrawn_.empty(); withdrawn_.pop_back()) {  // in the order of their submission
    MT_RETURN_IF_ERROR(ranks_.front()->executor().Settle(withdrawn_.back()));
  }
  return absl::OkStatus();
}

bool Trainer::AwaitStep(absl::FunctionRef<bool()> interrupted) {
  const Tickets& tickets = pending_.front().tickets;
  for (size_t rank = 0; rank < tickets.size(); ++rank) {
    if (!ranks_[rank]->executor().AwaitDone(tickets[rank], interrupted)) return false;
  }
  return true;
}

absl::StatusOr<StepRecord> Trainer::Collect() {
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  std::vector<LaneSeconds> busy;
  MT_ASSIGN_OR_RETURN(const Executor::Timing timing, WaitEach(pending.tickets, &busy));
  StepRecord record = std::move(pending.record);
  StepRunner& runner = ranks_.front()->runner();
  runner.CollectLoss(pending.slot);
  runner.CollectNorm(pending.slot);
  const StepState& state = runner.state(pending.slot);
  record.loss = state.loss_sum / static_cast<double>(state.loss_terms);
  if (state.rewards.pairs > 0) record.rewards = RewardsOf(state.rewards);
  record.gradient_norm = state.gradient_norm;
  RouterTotals router = state.router;
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    router.Append(ranks_[rank]->runner().state(pending.slot).router);
  }
  record.forward_seconds = timing.forward;
  record.compute_seconds = timing.compute;
  // The next step's forward may have begun: a share moves between neighbours, the sum is right.
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    record.matmul_seconds = std::max(record.matmul_seconds, rank->TakeMatMulSeconds());
  }
  // Steps overlap: what counts is the time from the end of the step before.
  record.step_seconds =
      std::chrono::duration<double>(timing.finished - std::max(timing.started, last_finished_))
          .count();
  last_finished_ = timing.finished;
  MT_RETURN_IF_ERROR(ShareRecord(record, router, busy));
  record.lane_busy_seconds = LongestOf(busy);
  record.spread = SpreadOf(busy);
  if (plan_.dimensions.shape.has_experts()) record.router = router.Report();
  record.tokens_per_second = static_cast<double>(record.input_tokens) / record.step_seconds;
  record.model_flops_per_second =
      6.0 * static_cast<double>(active_parameters_) * record.tokens_per_second;
  return record;
}

absl::Status Trainer::ShareRecord(StepRecord& record, RouterTotals& router,
                                  std::vector<LaneSeconds>& busy) {
  if (one_process()) return absl::OkStatus();
  std::vector<double> own = {record.step_seconds, record.forward_seconds, record.matmul_seconds,
                             static_cast<double>(record.h2d_bytes),
                             static_cast<double>(record.d2h_bytes)};
  const size_t lanes = own.size();
  record.h2d_bytes = record.d2h_bytes = 0;
  for (const auto& lane : kNamedLanes<double>) own.push_back(busy.front().*lane.value);
  busy.clear();
  const size_t head = own.size();
  const bool experts = plan_.dimensions.shape.has_experts();
  if (experts) {
    const std::vector<double> numbers = router.ToNumbers();
    own.insert(own.end(), numbers.begin(), numbers.end());
    router.ClearMicroBatches();  // its own come again, in the order of ranks
  }
  return ExchangeBytes(control(), BytesOf(own), [&](int, absl::string_view bytes) {
    const std::vector<double> values = ValuesIn(bytes);
    record.step_seconds = std::max(record.step_seconds, values[0]);
    record.forward_seconds = std::max(record.forward_seconds, values[1]);
    record.matmul_seconds = std::max(record.matmul_seconds, values[2]);
    record.h2d_bytes += static_cast<int64_t>(values[3]);
    record.d2h_bytes += static_cast<int64_t>(values[4]);
    LaneSeconds& of_rank = busy.emplace_back();
    for (size_t i = lanes; i < head; ++i) {
      of_rank.*kNamedLanes<double>[i - lanes].value = values[i];
    }
    if (experts) router.AppendNumbers(absl::MakeConstSpan(values).subspan(head));
  });
}

absl::StatusOr<int> Trainer::RunForward(const Batch& batch, LogitsRequest* logits) {
  // Every rank computes all logits: they are few, and a cache stays with those who made it.
  MT_ASSIGN_OR_RETURN(const int slot, PrepareBatch(batch, /*whole=*/logits != nullptr));
  const CacheUse cache = batch.first_rows.empty() ? CacheUse::kNone
                         : batch.attends_to_cache ? CacheUse::kAttend
                                                  : CacheUse::kFill;
  const Tickets tickets = SubmitEach([&](RankPipeline& rank) {
    StepState& state = rank.runner().state(slot);
    const PipelineShape& shape = rank.dimensions().shape;
    if (logits == nullptr) return BuildEvaluation(shape, state.micro_batch_tokens, rank.state());
    state.logits = shape.rank == 0 ? logits : nullptr;
    return BuildPrediction(shape, state.micro_batch_tokens, cache, rank.state());
  });
  MT_ASSIGN_OR_RETURN(const Executor::Timing timing, WaitEach(tickets));
  // Nothing that follows would tell that weights did not come from another GPU.
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    MT_RETURN_IF_ERROR(rank->exchange_status());
  }
  last_finished_ = timing.finished;
  return slot;
}

absl::StatusOr<double> Trainer::EvaluateLossSum(const Batch& batch, RewardSums* rewards) {
  MT_ASSIGN_OR_RETURN(const int slot, RunForward(batch, nullptr));
  StepRunner& runner = ranks_.front()->runner();
  runner.CollectLoss(slot);
  if (rewards != nullptr) *rewards = runner.state(slot).rewards;
  return runner.state(slot).loss_sum;
}

absl::StatusOr<std::vector<double>> Trainer::AnswerLogps(const Batch& batch) {
  MT_ASSIGN_OR_RETURN(const int slot, RunForward(batch, nullptr));
  std::vector<double> all;
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    const std::vector<double> logps = rank->runner().AnswerLogps(slot);
    all.insert(all.end(), logps.begin(), logps.end());
  }
  if (one_process()) return all;
  std::vector<double> of_processes;
  MT_RETURN_IF_ERROR(ExchangeBytes(control(), BytesOf(all), [&](int, absl::string_view bytes) {
    const std::vector<double> values = ValuesIn(bytes);
    of_processes.insert(of_processes.end(), values.begin(), values.end());
  }));
  return of_processes;
}

absl::StatusOr<std::vector<float>> Trainer::Logits(const Batch& batch,
                                                   const std::vector<TokenRange>& tokens) {
  LogitsRequest request;
  request.tokens = tokens;
  int64_t count = 0;
  for (const TokenRange& range : tokens) count += range.end - range.begin;
  request.logits.resize(count * plan_.dimensions.layout->model.vocabulary);
  MT_RETURN_IF_ERROR(RunForward(batch, &request).status());
  if (!one_process()) {
    const int64_t bytes = std::ssize(request.logits) * int64_t{sizeof(float)};
    MT_RETURN_IF_ERROR(control()->Broadcast(request.logits.data(), bytes, /*root=*/0));
  }
  return std::move(request.logits);
}

std::vector<float> Trainer::HeldGradient(int tile) const {
  std::vector<float> gradient;
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) {
    const auto* const shard =
        static_cast<const float*>(rank->host_buffers().slabs[static_cast<size_t>(tile)].data());
    gradient.insert(gradient.end(), shard, shard + rank->dimensions().shape.shard_elements(tile));
  }
  return gradient;
}

void Trainer::BeginSave(SaveCalls calls) {
  MutexLock lock(&gate_mutex_);
  save_gate_ = std::make_unique<SaveGate>(static_cast<int>(ranks_.size()), std::move(calls));
  save_tickets_ = SubmitEach([&](RankPipeline& rank) {
    rank.runner().set_save_calls(save_gate_->ForRank());
    return BuildCheckpoint(rank.dimensions().shape);
  });
}

void Trainer::CommitSave() {
  save_end_tickets_ = SubmitEach([](RankPipeline&) { return BuildCheckpointEnd(); });
}

bool Trainer::save_done() const {
  if (save_end_tickets_.empty()) return false;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank]->executor().Done(save_end_tickets_[rank])) return false;
  }
  return true;
}

absl::Status Trainer::AwaitSave() {
  absl::Status status = WaitEach(save_tickets_).status();
  // Also after an error, which may be a step's: the end of the save may still run.
  status.Update(WaitEach(save_end_tickets_).status());
  save_tickets_.clear();
  save_end_tickets_.clear();
  for (const std::unique_ptr<RankPipeline>& rank : ranks_) rank->runner().set_save_calls({});
  MutexLock lock(&gate_mutex_);
  status.Update(save_gate_->status());
  save_gate_ = nullptr;
  return status;
}

}  // namespace megatrain
