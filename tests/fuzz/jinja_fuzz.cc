// Arbitrary bytes as a Jinja program, rendered with a conversation and small limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/chat/jinja/jinja_program.h"
#include "engine/tokenizer/text/utf8.h"

namespace {

using megatrain::JinjaValue;

JinjaValue Message(const char* role, const char* content) {
  return JinjaValue::MakeDict(
      {{"role", JinjaValue::String(role)}, {"content", JinjaValue::String(content)}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const kVariables = new megatrain::JinjaVariables{
      {"messages",
       JinjaValue::MakeList({Message("user", " Grüße 😀 "), Message("assistant", "ok")})},
      {"add_generation_prompt", JinjaValue::Bool(true)},
      {"tools", JinjaValue::None()},
      {"n", JinjaValue::Int(-3)},
      {"x", JinjaValue::Float(2.5)}};
  megatrain::JinjaOptions options;
  options.limits.steps_max = 20'000;
  options.limits.bytes_max = 4 << 20;
  const auto program = megatrain::JinjaProgram::Parse({reinterpret_cast<const char*>(data), size});
  if (!program.ok()) return 0;
  const auto rendered = program->Render(*kVariables, options);
  if (!rendered.ok()) return 0;
  // What is rendered from well-formed text is well-formed, and a program gives the same again.
  if (!megatrain::CheckUtf8(rendered->text).ok()) std::abort();
  const auto again = program->Render(*kVariables, options);
  if (!again.ok() || again->text != rendered->text) std::abort();
  return 0;
}
