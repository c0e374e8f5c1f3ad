// The job-file reader: any bytes are a spec or a refusal, and a spec obeys its own rules.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/job/job_parser.h"
#include "engine/job/spec_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  // After a zero byte come overrides, a line each.
  std::vector<std::string> overrides;
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    std::string_view rest = text.substr(zero + 1);
    text = text.substr(0, zero);
    while (!rest.empty() && overrides.size() < 16) {
      const size_t end = rest.find('\n');
      overrides.emplace_back(rest.substr(0, end));
      if (end == std::string_view::npos) break;
      rest = rest.substr(end + 1);
    }
  }
  const auto spec = megatrain::ParseJobText(text, "job.yaml", "/base", overrides);
  if (!spec.ok()) {
    if (spec.status().message().empty()) std::abort();
    return 0;
  }
  if (spec->training.global_batch % spec->training.micro_batch != 0) std::abort();
  if ((spec->training.steps > 0) == (spec->training.epochs > 0)) std::abort();
  if (spec->data.train.empty() || spec->model.path.empty() || spec->model.path[0] != '/') {
    std::abort();
  }
  if (megatrain::SpecValues(*spec).empty()) std::abort();
  return 0;
}
