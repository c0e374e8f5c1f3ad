// ReadRope (config_readers.h).
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/hf/config/config_readers.h"

namespace megatrain {
namespace {

using nlohmann::json;

// Sets `scaled` to whether config.json names another type than "default".
RopeType ReadRopeType(JsonFields& fields, const RopeDefaults& defaults, bool* scaled) {
  const std::string legacy = fields.String("type", "default");
  if (!defaults.layer_type.empty() && legacy != "default" && !fields.Has("rope_type")) {
    fields.Refuse("type", "transformers reads rope_type alone in this family; rename the key");
  }
  const std::string type = fields.String("rope_type", legacy);
  *scaled = type != "default";
  // "dynamic" turns sequences differently that are longer than max_position_embeddings, which are
  // refused. Its factor counts all the same (ReadYarn).
  if (type == "default" || type == "dynamic") return RopeType::kDefault;
  if (type == "linear") return RopeType::kLinear;
  if (type == "llama3") return RopeType::kLlama3;
  if (type == "yarn") return RopeType::kYarn;
  if (type == "longrope" || type == "su") return RopeType::kLongrope;
  if (type == "proportional" && defaults.proportional) return RopeType::kProportional;
  fields.Refuse("rope_type", absl::StrCat("\"", type,
                                          "\" is not supported; default, dynamic, linear, llama3, "
                                          "longrope and yarn are"));
  return RopeType::kDefault;
}

void ReadLlama3(JsonFields& fields, RopeConfig& rope) {
  const bool used = rope.type == RopeType::kLlama3;
  for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
    if (used && fields.Find(key) == nullptr) fields.Refuse(key, "is missing");
  }
  rope.low_frequency_factor = fields.Number("low_freq_factor", 1e-6, 1e6, 1.0);
  rope.high_frequency_factor = fields.Number("high_freq_factor", 1e-6, 1e6, 4.0);
  if (used && rope.high_frequency_factor <= rope.low_frequency_factor) {
    fields.Refuse("high_freq_factor", "must be greater than low_freq_factor");
  }
}

// transformers takes mscale_all_dim with any type but "default".
void ReadYarn(JsonFields& fields, bool scaled, RopeConfig& rope) {
  rope.beta_fast = fields.Number("beta_fast", 1e-6, 1e6, 32.0);
  rope.beta_slow = fields.Number("beta_slow", 1e-6, 1e6, 1.0);
  rope.truncate = fields.Boolean("truncate", true);
  const double mscale = fields.Number("mscale", 0.0, 1e6, 0.0);
  const double mscale_all_dim = fields.Number("mscale_all_dim", 0.0, 1e6, 0.0);
  const auto scale = [&](double m) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0;
  };
  if (scaled && mscale_all_dim > 0.0) {
    rope.score_factor = scale(mscale_all_dim) * scale(mscale_all_dim);
  }
  if (rope.type != RopeType::kYarn) return;
  if (rope.theta <= 1.0) fields.Refuse("rope_theta", "must be greater than 1");
  if (rope.attention_factor == 0.0) {
    rope.attention_factor =
        mscale > 0.0 && mscale_all_dim > 0.0 ? scale(mscale) / scale(mscale_all_dim) : scale(1.0);
  }
}

// A list of as many factors as there are pairs.
std::vector<double> ReadFactors(JsonFields& fields, const char* key, const RopeConfig& rope) {
  const json* const list = fields.Find(key);
  if (rope.type != RopeType::kLongrope) return {};
  const size_t pairs = static_cast<size_t>(rope.rotary_dim / 2);
  std::vector<double> factors;
  if (list != nullptr && list->is_array()) {
    for (const json& factor : *list) {
      const double value = factor.is_number() ? factor.get<double>() : 0.0;
      if (!(value >= 1e-6 && value <= 1e9)) {
        fields.Refuse(key,
                      absl::StrCat("must be numbers from 1e-6 to 1e9, not ", DescribeJson(factor)));
        break;
      }
      factors.push_back(value);
    }
  }
  if (factors.size() != pairs) {
    fields.Refuse(key, absl::StrCat("must be a list of ", pairs,
                                    " numbers: one for each pair of elements that is rotated"));
    factors.assign(pairs, 1.0);
  }
  return factors;
}

// Returns the settings of a kind of layers within `object`, null if there are none. `older` is true
// for rope_scaling, which is that of full_attention.
const json* ObjectOfLayers(JsonFields& root, const json* object, bool older,
                           const std::string& layer_type, std::string* name) {
  if (object == nullptr || older) return layer_type == "full_attention" ? object : nullptr;
  if (!object->is_object()) return object;
  for (const auto& [key, settings] : object->items()) {
    if (key != "full_attention" && key != "sliding_attention") {
      root.Refuse(*name, absl::StrCat("\"", key,
                                      "\" is not expected here: this family has an object for "
                                      "full_attention and one for sliding_attention"));
      return nullptr;
    }
  }
  absl::StrAppend(name, ".", layer_type);
  const auto found = object->find(layer_type);
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

// Reads how sequences have become longer. `original` goes before the object's own number of
// original positions if it is above 0. `scaled` says that the type needs a factor.
void ReadScaling(JsonFields& fields, const ModelDescription& model, int64_t original, bool scaled,
                 RopeConfig& rope) {
  const int64_t own = fields.Integer("original_max_position_embeddings", 1, kPositionsMax, 0);
  rope.original_positions = original > 0 ? original : own > 0 ? own : model.max_positions;
  // Longrope's factor is by default how much longer sequences have become.
  const bool has_factor = fields.Find("factor") != nullptr;
  const bool longrope = rope.type == RopeType::kLongrope;
  if (scaled && !longrope && rope.type != RopeType::kProportional && !has_factor) {
    fields.Refuse("factor", "is missing");
  }
  rope.factor = fields.Number("factor", 1.0, 1e6, 1.0);
  if (longrope && !has_factor) {
    rope.factor =
        static_cast<double>(model.max_positions) / static_cast<double>(rope.original_positions);
  }
}

}  // namespace

int64_t TurningPairs(double fraction, int64_t head_dim) {
  return static_cast<int64_t>(std::floor(fraction * static_cast<double>(head_dim) / 2));
}

RopeConfig ReadRope(JsonFields& root, const ModelDescription& model, const RopeDefaults& defaults) {
  const int64_t head_dim =
      defaults.head_dim > 0 ? defaults.head_dim : model.layers[0].attention.head_dim;
  const json* scaling = root.Find("rope_scaling");
  const json* parameters = root.Find("rope_parameters");
  const double theta = defaults.theta_key.empty()
                           ? defaults.theta
                           : root.Number(defaults.theta_key, 1.0, 1e15, defaults.theta);
  int64_t original = root.Integer("original_max_position_embeddings", 1, kPositionsMax, 0);
  // transformers does not look at it where kinds of layers have objects of their own.
  if (!defaults.layer_type.empty()) original = 0;
  const auto read_fraction = [&](JsonFields& from, double absent) {
    if (defaults.rotary_fraction > 0) {
      return from.Number("partial_rotary_factor", 0.0, 1.0, absent);
    }
    from.MustBe("partial_rotary_factor", 1.0, "this family rotates every dimension of a head");
    return 1.0;
  };
  const double fraction = read_fraction(root, defaults.rotary_fraction);
  RopeConfig rope = defaults.absent;
  const auto rotate = [&](double part) {
    rope.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * part);
    if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
      root.Refuse("partial_rotary_factor",
                  absl::StrCat(part, " of a head's ", head_dim,
                               " elements must be an even number of at least 2"));
      rope.rotary_dim = 2;
    }
  };
  const auto without_object = [&] {
    if (rope.type == RopeType::kDefault) {
      rope.theta = theta;
    } else if (original > 0) {
      rope.original_positions = original;
    }
    rotate(fraction);
    return rope;
  };
  if (scaling && scaling->empty()) scaling = nullptr;
  if (parameters && parameters->empty()) {
    if (rope.type != RopeType::kDefault) {
      root.Refuse("rope_parameters",
                  "is empty; remove the key for what this family has without it, or name a "
                  "rope_type");
    }
    parameters = nullptr;
  }
  if (scaling && parameters && *scaling != *parameters) {
    root.Refuse("rope_scaling", "differs from rope_parameters; keep one of them");
    return without_object();
  }
  const json* object = scaling ? scaling : parameters;
  std::string name = scaling ? "rope_scaling" : "rope_parameters";
  if (!defaults.layer_type.empty()) {
    object = ObjectOfLayers(root, object, /*older=*/scaling != nullptr, defaults.layer_type, &name);
  }
  if (object == nullptr) return without_object();
  if (!object->is_object()) {
    root.Refuse(name, absl::StrCat("must be an object, not ", DescribeJson(*object)));
    return without_object();
  }
  JsonFields fields(*object, root.path(), name + ".");
  rope = RopeConfig();
  bool scaled = false;
  rope.type = ReadRopeType(fields, defaults, &scaled);
  const bool proportional = rope.type == RopeType::kProportional;
  rope.theta = fields.Number("rope_theta", 1.0, 1e15, theta);
  if (proportional) {
    rotate(1.0);
    rope.turning_pairs =
        TurningPairs(fields.Number("partial_rotary_factor", 0.0, 1.0, 1.0), head_dim);
  } else {
    rotate(read_fraction(fields, fraction));
  }
  fields.Find("finetuned");                // bookkeeping
  fields.Find("max_position_embeddings");  // of the whole model
  // transformers lets the value outside of the object win.
  ReadScaling(fields, model, original > 0 ? original : defaults.original_positions, scaled, rope);
  rope.attention_factor = fields.Number("attention_factor", 1e-6, 1e6, 0.0);
  ReadLlama3(fields, rope);
  ReadYarn(fields, scaled, rope);
  rope.short_factors = ReadFactors(fields, "short_factor", rope);
  rope.long_factors = ReadFactors(fields, "long_factor", rope);
  if (defaults.position_scale) {
    rope.position_scale = fields.Number("llama_4_scaling_beta", 0.0, 1e6, 0.0);
  }
  if (defaults.image_positions) {
    fields.Find("mrope_section");
    fields.Find("mrope_interleaved");
  }
  fields.RefuseUnread({});
  root.Take(fields.status());
  return rope;
}

}  // namespace megatrain
