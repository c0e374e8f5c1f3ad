// Thread safety: any thread may call Next; the loader's own thread prepares. They share the queue
// under the mutex, and nothing else.
// Invariants: the queue holds consecutive steps, at most `ahead`; what is prepared for a step
// depends on the step alone.
#include "engine/data/sequences/batch_loader.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"

namespace megatrain {
namespace {

using BatchOr = absl::StatusOr<std::shared_ptr<const Batch>>;

struct Plan {
  const Dataset* dataset = nullptr;
  const ReferenceLogps* reference = nullptr;
  int64_t global_batch = 0;
  int64_t micro_batch = 0;
  int64_t positions = 0;  // where an `epochs` run ends; 0 = nowhere
  int64_t first_step = 1;
  int64_t first_position = 0;  // of the first step
  int64_t total_steps = 0;
};

BatchOr Prepare(const Plan& plan, int64_t step) {
  const int64_t begin = plan.first_position + (step - plan.first_step) * plan.global_batch;
  int64_t end = begin + plan.global_batch;
  if (plan.positions > 0) end = std::min(end, plan.positions);
  std::vector<Sequence> sequences;
  sequences.reserve(static_cast<size_t>(std::max<int64_t>(0, end - begin)));
  for (int64_t position = begin; position < end; ++position) {
    const int64_t index = plan.dataset->TrainingOrder(position);
    MT_ASSIGN_OR_RETURN(Sequence sequence, plan.dataset->TrainSequence(index));
    if (plan.reference != nullptr) {
      MT_ASSIGN_OR_RETURN(sequence.reference_logps, plan.reference->Read(index));
    }
    sequences.push_back(std::move(sequence));
  }
  auto batch = std::make_shared<const Batch>(MakeBatch(step, sequences, plan.micro_batch));
  if (batch->predictions == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, ": none of the batch's ", sequences.size(),
                     " sequences has a prediction to learn from; a larger training.global_batch "
                     "or a longer data.sequence_length avoids such batches"));
  }
  return batch;
}

}  // namespace

struct BatchLoader::State {
  Plan plan;
  size_t ahead = 1;
  int64_t next_step = 1;  // to be prepared; the loader's thread alone

  Mutex mutex;
  CondVar changed;
  // The end and an error are its last element, and stay there for every later call.
  std::deque<BatchOr> queue ABSL_GUARDED_BY(mutex);
  bool stop ABSL_GUARDED_BY(mutex) = false;
  std::thread thread;

  void Run() {
    NameThisThread("loader");
    bool last = false;
    while (!last) {
      BatchOr batch = next_step > plan.total_steps
                          ? BatchOr(absl::OutOfRangeError(
                                absl::StrCat("step ", plan.total_steps, " was the last one")))
                          : Prepare(plan, next_step);
      ++next_step;
      last = !batch.ok();
      MutexLock lock(&mutex);
      while (!stop && queue.size() >= ahead) changed.Wait(&mutex);
      if (stop) return;
      queue.push_back(std::move(batch));
      changed.NotifyAll();
    }
  }
};

BatchLoader::BatchLoader(const Dataset* dataset, const JobSpec& spec, int64_t first_step,
                         int64_t first_position, int64_t total_steps, int ahead,
                         const ReferenceLogps* reference)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.plan.dataset = dataset;
  state.plan.reference = reference;
  state.plan.global_batch = spec.training.global_batch;
  state.plan.micro_batch = spec.training.micro_batch;
  state.plan.total_steps = total_steps;
  state.plan.positions = EpochPositions(spec, dataset->epoch_sequences());
  state.plan.first_step = first_step;
  state.plan.first_position = first_position;
  state.ahead = static_cast<size_t>(std::max(1, ahead));
  state.next_step = first_step;
  state.thread = std::thread([&state] { state.Run(); });
}

BatchLoader::~BatchLoader() {
  {
    MutexLock lock(&state_->mutex);
    state_->stop = true;
    state_->changed.NotifyAll();
  }
  state_->thread.join();
}

absl::StatusOr<std::shared_ptr<const Batch>> BatchLoader::Next() {
  State& state = *state_;
  MutexLock lock(&state.mutex);
  while (state.queue.empty()) state.changed.Wait(&state.mutex);
  if (!state.queue.front().ok()) return state.queue.front().status();
  BatchOr batch = std::move(state.queue.front());
  state.queue.pop_front();
  state.changed.NotifyAll();
  return batch;
}

}  // namespace megatrain
