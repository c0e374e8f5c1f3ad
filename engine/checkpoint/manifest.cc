#include "engine/checkpoint/manifest.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/hf/hf_format.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

// Beyond any checkpoint, and small enough to add up.
constexpr int64_t kFileBytesMax = int64_t{1} << 56;
constexpr char kFormat[] = "megatrain checkpoint";
constexpr char kSealBegin[] = ",\n  \"xxh3_128\": \"";
constexpr char kSealEnd[] = "\"\n}\n";

absl::Status Bad(const std::string& what) {
  return absl::DataLossError(absl::StrCat(kManifestFile, ": ", what));
}

// Typed access that never throws.
absl::StatusOr<int64_t> GetInteger(const Json& object, const char* key, int64_t min) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) {
    return Bad(absl::StrCat("\"", key, "\" is not an integer"));
  }
  if (it->is_number_unsigned() &&
      it->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Bad(absl::StrCat("\"", key, "\" is out of range"));
  }
  const int64_t value = it->get<int64_t>();
  if (value < min) return Bad(absl::StrCat("\"", key, "\" is ", value, ", less than ", min));
  return value;
}

absl::StatusOr<std::string> GetString(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) {
    return Bad(absl::StrCat("\"", key, "\" is not a string"));
  }
  return it->get<std::string>();
}

absl::StatusOr<const Json*> GetMember(const Json& object, const char* key, Json::value_t type) {
  const auto it = object.find(key);
  if (it == object.end() || it->type() != type) {
    return Bad(absl::StrCat("\"", key, "\" is missing or of a wrong type"));
  }
  return &*it;
}

Json StateToJson(const CheckpointState& state) {
  Json json = Json::object();
  json["step"] = state.step;
  json["weight_dtype"] = DTypeName(state.weight_dtype);
  json["data_position"] = state.data_position;
  json["input_tokens"] = state.input_tokens;
  json["run"] = state.run;
  json["seed"] = state.seed;
  json["data_fingerprint"] = state.data_fingerprint;
  json["model_fingerprint"] = state.model_fingerprint;
  json["threads"] = state.threads;
  json["arithmetic"] = state.arithmetic;
  json["steps_total"] = state.steps_total;
  const Evaluations& evaluations = state.evaluations;
  if (evaluations.best_step > 0) {
    json["best"] = {{"step", evaluations.best_step}, {"eval_loss", evaluations.best_loss}};
  }
  if (evaluations.kept_step != evaluations.best_step) {
    json["kept_best"] = evaluations.kept_step == 0 ? Json()
                                                   : Json{{"step", evaluations.kept_step},
                                                          {"eval_loss", evaluations.kept_loss}};
  }
  json["evaluations_since_best"] = evaluations.since_best;
  if (!state.reference.empty()) json["reference"] = state.reference;
  if (!state.carried_digest.empty()) json["carried_digest"] = state.carried_digest;
  for (const AllowedChange& change : state.allowed_changes) {
    json["allowed_changes"].push_back({{"step", change.step},
                                       {"key", change.key},
                                       {"before", change.before},
                                       {"now", change.now}});
  }
  json["spec"] = Json::object();
  for (const auto& [key, value] : state.spec) json["spec"][key] = value;
  return json;
}

// Sets nothing if `key` is not there.
absl::Status GetBest(const Json& json, const char* key, int64_t* step, double* loss) {
  if (!json.contains(key)) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const Json* best, GetMember(json, key, Json::value_t::object));
  MT_ASSIGN_OR_RETURN(*step, GetInteger(*best, "step", 1));
  const auto value = best->find("eval_loss");
  if (value == best->end() || !value->is_number()) return Bad("\"eval_loss\" is not a number");
  *loss = value->get<double>();
  return absl::OkStatus();
}

absl::StatusOr<CheckpointState> StateFromJson(const Json& json) {
  CheckpointState state;
  MT_ASSIGN_OR_RETURN(state.step, GetInteger(json, "step", 0));
  MT_ASSIGN_OR_RETURN(const std::string dtype, GetString(json, "weight_dtype"));
  if (dtype == DTypeName(DType::kBF16)) {
    state.weight_dtype = DType::kBF16;
  } else if (dtype == DTypeName(DType::kF32)) {
    state.weight_dtype = DType::kF32;
  } else {
    return Bad(absl::StrCat("\"weight_dtype\" is \"", dtype, "\", neither BF16 nor F32"));
  }
  MT_ASSIGN_OR_RETURN(state.data_position, GetInteger(json, "data_position", 0));
  MT_ASSIGN_OR_RETURN(state.input_tokens, GetInteger(json, "input_tokens", 0));
  if (json.contains("run")) {
    MT_ASSIGN_OR_RETURN(state.run, GetString(json, "run"));
  }
  const auto seed = json.find("seed");
  if (seed == json.end() || !seed->is_number_unsigned()) {
    return Bad("\"seed\" is not an unsigned integer");
  }
  state.seed = seed->get<uint64_t>();
  MT_ASSIGN_OR_RETURN(state.data_fingerprint, GetString(json, "data_fingerprint"));
  MT_ASSIGN_OR_RETURN(state.model_fingerprint, GetString(json, "model_fingerprint"));
  MT_ASSIGN_OR_RETURN(const int64_t threads, GetInteger(json, "threads", 0));
  if (threads > std::numeric_limits<int>::max()) return Bad("\"threads\" is out of range");
  state.threads = static_cast<int>(threads);
  if (json.contains("arithmetic")) {
    MT_ASSIGN_OR_RETURN(state.arithmetic, GetString(json, "arithmetic"));
  }
  MT_ASSIGN_OR_RETURN(state.steps_total, GetInteger(json, "steps_total", 0));
  // Versions before had none of these.
  if (json.contains("allowed_changes")) {
    MT_ASSIGN_OR_RETURN(const Json* changes,
                        GetMember(json, "allowed_changes", Json::value_t::array));
    for (const Json& entry : *changes) {
      if (!entry.is_object()) return Bad("an entry of \"allowed_changes\" is not an object");
      AllowedChange& change = state.allowed_changes.emplace_back();
      MT_ASSIGN_OR_RETURN(change.step, GetInteger(entry, "step", 0));
      MT_ASSIGN_OR_RETURN(change.key, GetString(entry, "key"));
      MT_ASSIGN_OR_RETURN(change.before, GetString(entry, "before"));
      MT_ASSIGN_OR_RETURN(change.now, GetString(entry, "now"));
    }
  }
  if (json.contains("reference")) {
    MT_ASSIGN_OR_RETURN(state.reference, GetString(json, "reference"));
  }
  if (json.contains("carried_digest")) {
    MT_ASSIGN_OR_RETURN(state.carried_digest, GetString(json, "carried_digest"));
  }
  if (json.contains("evaluations_since_best")) {
    MT_ASSIGN_OR_RETURN(state.evaluations.since_best,
                        GetInteger(json, "evaluations_since_best", 0));
  }
  Evaluations& evaluations = state.evaluations;
  MT_RETURN_IF_ERROR(GetBest(json, "best", &evaluations.best_step, &evaluations.best_loss));
  evaluations.kept_step = evaluations.best_step;
  evaluations.kept_loss = evaluations.best_loss;
  const auto kept = json.find("kept_best");
  if (kept != json.end() && kept->is_null()) {
    evaluations.kept_step = 0;
    evaluations.kept_loss = 0;
  } else {
    MT_RETURN_IF_ERROR(GetBest(json, "kept_best", &evaluations.kept_step, &evaluations.kept_loss));
  }
  MT_ASSIGN_OR_RETURN(const Json* spec, GetMember(json, "spec", Json::value_t::object));
  for (const auto& [key, value] : spec->items()) {
    if (!value.is_string()) return Bad(absl::StrCat("\"spec\".\"", key, "\" is not a string"));
    state.spec[key] = value.get<std::string>();
  }
  return state;
}

bool IsPlainName(std::string_view name) {
  constexpr std::string_view kTemplates = kHfTemplatesDirectory;
  if (name.substr(0, kTemplates.size()) == kTemplates && name.substr(kTemplates.size(), 1) == "/") {
    name.remove_prefix(kTemplates.size() + 1);
  }
  return !name.empty() && name != "." && name != ".." && name != kManifestFile &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

absl::StatusOr<CheckpointPart> PartFromJson(const Json& manifest) {
  MT_ASSIGN_OR_RETURN(const Json* json, GetMember(manifest, "part", Json::value_t::object));
  CheckpointPart part;
  MT_ASSIGN_OR_RETURN(const int64_t parts, GetInteger(*json, "of", 2));
  MT_ASSIGN_OR_RETURN(const int64_t number, GetInteger(*json, "number", 0));
  MT_ASSIGN_OR_RETURN(part.save, GetString(*json, "save"));
  if (part.save.size() != kHashDigits ||
      part.save.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Bad("\"save\" is not 32 hex digits");
  }
  if (number >= parts || parts > std::numeric_limits<int>::max()) {
    return Bad(absl::StrCat("part ", number, " of ", parts, " cannot be"));
  }
  part.number = static_cast<int>(number);
  part.parts = static_cast<int>(parts);
  return part;
}

// Reads "ranges" of a file's entry; none if it is not there.
absl::Status ReadRanges(const Json& entry, ManifestFile& file) {
  if (!entry.contains("ranges")) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const Json* ranges, GetMember(entry, "ranges", Json::value_t::array));
  int64_t end = 0, bytes = 0;
  for (const Json& range : *ranges) {
    const bool numbers = range.is_array() && range.size() == 2 && range[0].is_number_integer() &&
                         range[1].is_number_integer();
    if (!numbers) return Bad("an entry of \"ranges\" is not two integers");
    const FileRange& read =
        file.ranges.emplace_back(FileRange{range[0].get<int64_t>(), range[1].get<int64_t>()});
    if (read.begin < end || read.end <= read.begin || read.end > kFileBytesMax) {
      return Bad(absl::StrCat("\"ranges\" of \"", file.name, "\" are not ascending"));
    }
    end = read.end;
    bytes += read.end - read.begin;
  }
  if (bytes >= file.bytes) {
    return Bad(absl::StrCat("\"ranges\" of \"", file.name, "\" leave no room for its header"));
  }
  return absl::OkStatus();
}

absl::Status ReadFiles(const Json& json, Manifest& manifest) {
  std::set<std::string> seen;
  int64_t bytes = 0;  // of all files
  for (const Json& entry : json) {
    if (!entry.is_object()) return Bad("an entry of \"files\" is not an object");
    ManifestFile file;
    MT_ASSIGN_OR_RETURN(file.name, GetString(entry, "name"));
    if (!IsPlainName(file.name)) {
      return Bad(absl::StrCat("file name \"", file.name, "\" is not one within the checkpoint"));
    }
    if (!seen.insert(file.name).second) {
      return Bad(absl::StrCat("file \"", file.name, "\" is listed twice"));
    }
    MT_ASSIGN_OR_RETURN(file.bytes, GetInteger(entry, "bytes", 0));
    if (file.bytes > kFileBytesMax - bytes) {
      return Bad(absl::StrCat("file \"", file.name, "\" has ", file.bytes,
                              " bytes, more than a checkpoint can have"));
    }
    bytes += file.bytes;
    MT_ASSIGN_OR_RETURN(file.xxh3_128, GetString(entry, "xxh3_128"));
    if (entry.contains("blocks_xxh3_128")) {
      MT_ASSIGN_OR_RETURN(file.blocks, GetString(entry, "blocks_xxh3_128"));
      const int64_t blocks = file.bytes / kHashBlockBytes + (file.bytes % kHashBlockBytes > 0);
      if (std::ssize(file.blocks) != blocks * static_cast<int64_t>(kHashDigits)) {
        return Bad(absl::StrCat("file \"", file.name, "\" has ", file.blocks.size(),
                                " digits of \"blocks_xxh3_128\" for ", blocks, " blocks"));
      }
    }
    MT_RETURN_IF_ERROR(ReadRanges(entry, file));
    manifest.files.push_back(std::move(file));
  }
  for (int tile = 0; tile < manifest.tiles; ++tile) {
    for (const std::string& name : manifest.TileFileNames(tile)) {
      if (seen.count(name) == 0) return Bad(absl::StrCat("does not list ", name));
    }
  }
  if (seen.count(kHfIndexFileName) + seen.count(kHfPartsIndexFileName) == 0) {
    return Bad(absl::StrCat("does not list ", kHfIndexFileName, " or ", kHfPartsIndexFileName));
  }
  return absl::OkStatus();
}

}  // namespace

std::string WeightsFileName(int index, int tiles) { return HfShardName(index + 1, tiles); }

std::string OptimizerFileName(int index, int tiles) {
  return absl::StrFormat("optimizer-%05d-of-%05d.safetensors", index + 1, tiles);
}

std::array<std::string, 2> Manifest::TileFileNames(int index) const {
  const char* const suffix = part.has_value() ? kPartSuffix : "";
  return {absl::StrCat(WeightsFileName(index, tiles), suffix),
          absl::StrCat(OptimizerFileName(index, tiles), suffix)};
}

const ManifestFile* Manifest::Find(std::string_view name) const {
  for (const ManifestFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

int64_t Manifest::total_bytes() const {
  int64_t total = 0;
  for (const ManifestFile& file : files) total += file.bytes;
  return total;
}

std::string SerializeManifest(const Manifest& manifest) {
  Json json = Json::object();
  json["format"] = kFormat;
  json["version"] = kManifestVersion;
  if (manifest.part.has_value()) {
    const CheckpointPart& part = *manifest.part;
    json["version"] = kPartManifestVersion;
    json["part"] = {{"number", part.number}, {"of", part.parts}, {"save", part.save}};
  }
  json["tiles"] = manifest.tiles;
  json["state"] = StateToJson(manifest.state);
  json["files"] = Json::array();
  for (const ManifestFile& file : manifest.files) {
    Json& entry = json["files"].emplace_back(
        Json{{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
    if (!file.blocks.empty()) entry["blocks_xxh3_128"] = file.blocks;
    for (const FileRange& range : file.ranges) entry["ranges"].push_back({range.begin, range.end});
  }
  // Values come from job files, whose bytes need not be UTF-8: replaced rather than refused here.
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - 2);  // without the closing "\n}"
  const std::string hash = HashBytes(text);
  absl::StrAppend(&text, kSealBegin, hash, kSealEnd);
  return text;
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  const size_t seal_bytes = sizeof(kSealBegin) - 1 + kHashDigits + sizeof(kSealEnd) - 1;
  if (text.size() < seal_bytes) return Bad("truncated");
  const std::string_view body = text.substr(0, text.size() - seal_bytes);
  std::string_view seal = text.substr(body.size());
  if (!seal.starts_with(kSealBegin) || !seal.ends_with(kSealEnd)) {
    return Bad("truncated, or not written by this program");
  }
  seal.remove_prefix(sizeof(kSealBegin) - 1);
  if (seal.substr(0, kHashDigits) != HashBytes(body)) return Bad("its checksum does not match");

  const absl::StatusOr<Json> parsed = ParseOrderedJson(text, kManifestFile);
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  const Json& json = *parsed;
  if (!json.is_object()) return Bad("not a JSON object");
  MT_ASSIGN_OR_RETURN(const std::string format, GetString(json, "format"));
  if (format != kFormat) return Bad(absl::StrCat("\"format\" is \"", format, "\""));
  MT_ASSIGN_OR_RETURN(const int64_t version, GetInteger(json, "version", 1));
  if (version > kPartManifestVersion) {
    return absl::FailedPreconditionError(absl::StrCat(kManifestFile, ": version ", version,
                                                      " is not one that this program reads (1 to ",
                                                      kPartManifestVersion, ")"));
  }
  Manifest manifest;
  MT_ASSIGN_OR_RETURN(const int64_t tiles, GetInteger(json, "tiles", 1));
  MT_ASSIGN_OR_RETURN(const Json* state, GetMember(json, "state", Json::value_t::object));
  MT_ASSIGN_OR_RETURN(manifest.state, StateFromJson(*state));
  MT_ASSIGN_OR_RETURN(const Json* files, GetMember(json, "files", Json::value_t::array));
  if (tiles > static_cast<int64_t>(files->size())) return Bad("lists fewer files than tiles");
  manifest.tiles = static_cast<int>(tiles);
  if (version == kPartManifestVersion) {
    MT_ASSIGN_OR_RETURN(manifest.part, PartFromJson(json));
  }
  MT_RETURN_IF_ERROR(ReadFiles(*files, manifest));
  return manifest;
}

}  // namespace megatrain
