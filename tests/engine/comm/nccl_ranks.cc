#include "tests/engine/comm/nccl_ranks.h"

#include <algorithm>
#include <thread>

#include "engine/base/status.h"
#include "engine/comm/nccl_communicator.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<NcclRank>> NcclRank::Create(std::shared_ptr<Device> device,
                                                           std::unique_ptr<NcclApi> nccl) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device->CreateStream(StreamUse::kCompute));
  return std::unique_ptr<NcclRank>(
      new NcclRank(std::move(device), std::move(nccl), std::move(stream)));
}

absl::Status NcclRank::Open(std::unique_ptr<Communicator> bootstrap, int64_t scratch_bytes,
                            const NcclPatience& patience, int group_ranks) {
  MT_ASSIGN_OR_RETURN(scratch_, device_->Allocate(std::max<int64_t>(256, scratch_bytes)));
  MT_ASSIGN_OR_RETURN(communicator_, CreateNcclCommunicator(std::move(bootstrap), nccl_.get(),
                                                            device_.get(), scratch_->data(),
                                                            scratch_bytes, patience, group_ranks));
  return absl::OkStatus();
}

DeviceBuffers NcclRank::Buffers() {
  return {.make = [this](const std::vector<char>& content) -> void* {
            const int64_t bytes = static_cast<int64_t>(content.size());
            absl::StatusOr<std::unique_ptr<DeviceMemory>> made =
                device_->Allocate(std::max<int64_t>(1, bytes));
            status_.Update(made.status());
            if (!made.ok()) return nullptr;
            void* const data = (*made)->data();
            memory_.push_back(*std::move(made));
            status_.Update(device_->Upload(*stream_, data, content.data(), bytes));
            return data;
          },
          .read =
              [this](void* buffer, int64_t bytes) {
                std::vector<char> content(static_cast<size_t>(bytes));
                status_.Update(device_->Download(*stream_, content.data(), buffer, bytes));
                return content;
              }};
}

absl::Status NcclRank::Synchronize() {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, device_->CreateEvent());
  MT_RETURN_IF_ERROR(device_->Record(*stream_, *event));
  return device_->Synchronize(*event);
}

std::vector<absl::Status> OnEachNcclRank(const std::vector<std::unique_ptr<NcclRank>>& ranks,
                                         std::vector<CommunicatorSet>& sets, int64_t scratch_bytes,
                                         const NcclPatience& patience,
                                         const std::function<absl::Status(int rank)>& body,
                                         int group_ranks) {
  std::vector<absl::Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      NcclRank& rank = *ranks[i];
      results[i] = rank.Open(std::move(sets[i].tiles), scratch_bytes, patience, group_ranks);
      if (results[i].ok()) results[i] = body(static_cast<int>(i));
      results[i].Update(rank.status());
      // Communicators wait for each other when they end, and for those that have failed never.
      if (!results[i].ok() && rank.communicator_ != nullptr) {
        rank.communicator_->Abort(results[i]);
      }
      rank.communicator_ = nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace megatrain
