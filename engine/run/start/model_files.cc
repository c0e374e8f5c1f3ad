#include "engine/run/start/model_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/checkpoint/disk/concurrent_for.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/weight_files.h"
#include "engine/run/start/processes.h"

namespace megatrain {
namespace {

constexpr char kAdvice[] =
    "name the same model on all machines: copy the directory of one of them to the others";

// Returns the hash of the blocks of `stored` that are compared.
absl::StatusOr<std::string> SampleHash(const StoredTensor& stored) {
  const int64_t bytes = stored.tensor->bytes();
  std::array<char, 3 * kSampleBytes> sample;
  int64_t filled = 0;
  const auto read = [&](int64_t offset, int64_t count) {
    const absl::Status status =
        stored.reader->Read(*stored.tensor, offset, sample.data() + filled, count);
    filled += count;
    return status;
  };
  if (bytes <= std::ssize(sample)) {
    MT_RETURN_IF_ERROR(read(0, bytes));
  } else {
    for (const int64_t offset : {int64_t{0}, (bytes - kSampleBytes) / 2, bytes - kSampleBytes}) {
      MT_RETURN_IF_ERROR(read(offset, kSampleBytes));
    }
  }
  return HashBytes({sample.data(), static_cast<size_t>(filled)});
}

std::string NameInDirectory(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

absl::Status CheckSameSideFiles(RunContext& run) {
  if (run.processes() == nullptr) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(std::vector<std::string> names,
                      ListHfSideFiles(run.files(), run.spec().model.path));
  names.push_back(kConfigFileName);
  std::map<std::string, std::string> hashes;
  for (const std::string& name : names) {
    const absl::StatusOr<std::string> hash =
        HashFile(run.files(), JoinPath(run.spec().model.path, name), nullptr);
    if (absl::IsNotFound(hash.status())) continue;
    MT_RETURN_IF_ERROR(hash.status());
    hashes[absl::StrCat("a file ", name, " of the hash")] = *hash;
  }
  return CheckSameInAll(run, "model.path", hashes, kAdvice);
}

absl::Status CheckSameWeights(RunContext& run) {
  if (run.processes() == nullptr) return absl::OkStatus();
  run.Report(TrainingPhase::kPreparing, "comparing the model's files");
  MT_ASSIGN_OR_RETURN(const StoredTensors stored,
                      StoredTensors::Open(run.files(), run.spec().model.path));
  std::vector<std::pair<std::string, const StoredTensor*>> tensors;
  for (const auto& [name, tensor] : stored.by_name()) tensors.emplace_back(name, &tensor);
  std::vector<std::string> samples(tensors.size());
  MT_RETURN_IF_ERROR(ConcurrentFor(
      static_cast<int>(tensors.size()), kTransferThreads,
      [&](int) { return run.CheckNotAbandoned(); },
      [&](int i) -> absl::Status {
        const auto at = static_cast<size_t>(i);
        MT_ASSIGN_OR_RETURN(samples[at], SampleHash(*tensors[at].second));
        return absl::OkStatus();
      }));
  std::map<std::string, std::string> own;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, place] = tensors[i];
    const SafetensorsTensor& tensor = *place->tensor;
    const std::string file = NameInDirectory(place->reader->path());
    own[absl::StrCat("tensor ", name, " in ", file)] = absl::StrCat(
        tensor.dtype, " ", ShapeText(tensor.shape), " at byte ",
        place->reader->header().data_offset + tensor.begin, ", its samples of hash ", samples[i]);
  }
  return CheckSameInAll(run, "model.path", own, kAdvice);
}

}  // namespace megatrain
