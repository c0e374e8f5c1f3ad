#include "engine/checkpoint/describe_checkpoint.h"

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/model/safetensors.h"

namespace megatrain {

bool IsCheckpoint(const std::string& path, FileSystem* files) {
  return files->FileExists(JoinPath(path, kManifestFile));
}

absl::StatusOr<CheckpointDescription> DescribeCheckpoint(const std::string& path,
                                                         FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(path, files));
  const CheckpointState& state = manifest.state;
  int64_t tensors = 0, parameters = 0;
  for (int tile = 0; tile < manifest.tiles; ++tile) {
    MT_ASSIGN_OR_RETURN(
        const std::unique_ptr<SafetensorsReader> reader,
        SafetensorsReader::Open(files, JoinPath(path, WeightsFileName(tile, manifest.tiles))));
    for (const SafetensorsTensor& tensor : reader->header().tensors) {
      ++tensors;
      parameters += tensor.elements;
    }
  }
  const char* precision = state.weight_dtype == DType::kBF16 ? "bf16" : "fp32";

  nlohmann::ordered_json json = {{"kind", "checkpoint"},
                                 {"path", path},
                                 {"step", state.step},
                                 {"steps_total", state.steps_total},
                                 {"precision", precision},
                                 {"parameters", parameters},
                                 {"tensors", tensors},
                                 {"tiles", manifest.tiles},
                                 {"files", manifest.files.size() + 1},
                                 {"bytes", manifest.total_bytes()},
                                 {"data_position", state.data_position},
                                 {"seed", state.seed},
                                 {"threads", state.threads},
                                 {"model_fingerprint", state.model_fingerprint},
                                 {"data_fingerprint", state.data_fingerprint},
                                 {"spec", state.spec}};

  CheckpointDescription description;
  std::string& text = description.text;
  const auto line = [&](const char* key, const std::string& value) {
    absl::StrAppendFormat(&text, "%-18s %s\n", key, value);
  };
  line("checkpoint", path);
  line("step", absl::StrCat(state.step, " of ", state.steps_total));
  line("precision", precision);
  line("parameters", FormatCount(parameters));
  line("tensors", absl::StrCat(tensors, " in ", manifest.tiles, " tiles"));
  line("size", absl::StrCat(FormatBytes(manifest.total_bytes()), " in ", manifest.files.size() + 1,
                            " files"));
  line("next sequence", FormatCount(state.data_position));
  line("seed", absl::StrCat(state.seed));
  line("threads", absl::StrCat(state.threads));
  line("model fingerprint", state.model_fingerprint);
  line("data fingerprint", state.data_fingerprint);
  for (const auto& [key, value] : state.spec) absl::StrAppend(&text, "  ", key, ": ", value, "\n");
  description.json = absl::StrCat(
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "\n");
  return description;
}

}  // namespace megatrain
