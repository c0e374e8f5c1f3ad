#include "engine/hf/hf_init.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/hf/config/presets.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_format.h"
#include "engine/hf/hf_writer.h"
#include "engine/hf/master_convert.h"
#include "engine/hf/random_weights.h"
#include "engine/memory/split_master.h"
#include "engine/tokenizer/bytes_tokenizer.h"

namespace megatrain {
namespace {

// 8 MiB of FP32: enough blocks for every thread of a pool, little beside any tile.
constexpr int64_t kChunkElements = int64_t{2} << 20;

absl::StatusOr<Preset> FindPreset(const std::string& name) {
  for (Preset& preset : Presets()) {
    if (preset.name == name) return std::move(preset);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no preset \"", name, "\"; there are ",
                                                 absl::StrJoin(PresetNames(), ", ")));
}

absl::Status GiveRandomTensor(const ModelDescription& config, uint64_t seed,
                              const TensorSpec& tensor, ElementRange part, DType dtype,
                              ThreadPool* pool, TensorSink sink) {
  dtype = WeightDType(tensor, dtype);
  const int64_t chunk_elements = std::min(part.end - part.begin, kChunkElements);
  std::vector<float> values(chunk_elements);
  std::vector<bf16_t> rounded(dtype == DType::kBF16 ? chunk_elements : 0);
  for (const TensorRun& run : RunsOf(tensor, part)) {
    for (int64_t done = 0; done < run.elements;) {
      const int64_t elements = std::min(run.elements - done, kChunkElements);
      FillRandomWeights(config, seed, tensor, run.source + done, elements, values.data(), pool);
      const void* data = values.data();
      if (dtype == DType::kBF16) {
        for (int64_t i = 0; i < elements; ++i) rounded[i] = EncodeMaster(values[i]).weight;
        data = rounded.data();
      }
      MT_RETURN_IF_ERROR(sink(data, elements * DTypeBytes(dtype)));
      done += elements;
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return names;
}

absl::Status InitializeHfDirectory(const std::string& preset_name, uint64_t seed, bool config_only,
                                   const std::string& directory, ThreadPool* pool,
                                   FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Preset preset, FindPreset(preset_name));
  MT_ASSIGN_OR_RETURN(const ModelDescription config,
                      ParseModelDescription(preset.config_json, kConfigFileName));
  std::string target = directory;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  if (files->FileExists(target)) {
    if (!files->IsDirectory(target)) {
      return absl::FailedPreconditionError(absl::StrCat(target, " exists and is no directory"));
    }
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(target));
    if (!names.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(target, " is not empty (it holds ", names.front(), ")"));
    }
  }
  return ReplaceDirectory(files, target, [&](const std::string& temporary) -> absl::Status {
    const auto write = [&](const char* name, const std::string& content) {
      return WriteFileSynced(files, JoinPath(temporary, name), content);
    };
    MT_RETURN_IF_ERROR(write(kConfigFileName, preset.config_json));
    if (preset.bytes_tokenizer) {
      MT_RETURN_IF_ERROR(write("tokenizer.json", BytesTokenizerJson()));
      MT_RETURN_IF_ERROR(write("tokenizer_config.json", BytesTokenizerConfigJson()));
    }
    if (config_only) return absl::OkStatus();
    return WriteHfWeights(files, temporary, BuildModelLayout(config), preset.dtype, kHfShardBytes,
                          [&](int, const TensorSpec& tensor, ElementRange part, TensorSink sink) {
                            return GiveRandomTensor(config, seed, tensor, part, preset.dtype, pool,
                                                    sink);
                          });
  });
}

}  // namespace megatrain
