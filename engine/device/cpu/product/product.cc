#include "engine/device/cpu/product/product.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "dnnl.hpp"
#include "dnnl_debug.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

// GNU OpenMP, which Debian's oneDNN is built with.
extern "C" void omp_set_num_threads(int threads);

namespace megatrain {
namespace {

using Memory = dnnl::memory;

Memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kF32 ? Memory::data_type::f32 : Memory::data_type::bf16;
}

Memory::desc MatrixOf(int64_t rows, int64_t columns, DType dtype, bool transposed, int64_t stride) {
  return Memory::desc(Memory::dims{rows, columns}, TypeOf(dtype),
                      transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1});
}

// oneDNN's cache of primitives is shared by the process and synchronised in code that TSan cannot
// see; making a product is rare, so one at a time costs nothing.
Mutex creation;

}  // namespace

std::string ProductLibrary() {
  const dnnl_version_t* const version = dnnl_version();
  absl::string_view isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  absl::ConsumePrefix(&isa, "cpu_isa_");
  return absl::StrCat("oneDNN ", version->major, ".", version->minor, ".", version->patch, " (",
                      isa, ")");
}

struct Product::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul product;
  Memory a, b, out, bias, scratch;
  dnnl_exec_arg_t args[5];
  int arg_count = 0;
};

Product::Product(std::unique_ptr<State> state) : state_(std::move(state)) {}
Product::~Product() = default;

absl::StatusOr<std::unique_ptr<Product>> Product::Create(const ProductShape& s) {
  UseOneOpenMpThread();
  const MutexLock one_at_a_time(&creation);
  try {
    auto state = std::make_unique<State>();
    const Memory::desc a = MatrixOf(s.m, s.k, s.dtype, s.transpose_a, s.a_stride);
    const Memory::desc b = MatrixOf(s.k, s.n, s.dtype, s.transpose_b, s.b_stride);
    const Memory::desc out = MatrixOf(s.m, s.n, s.out_dtype, false, s.out_stride);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const Memory::desc bias(Memory::dims{1, s.n}, TypeOf(s.dtype), Memory::dims{s.n, 1});
    // oneDNN scales a bias of its own with the product, so beside alpha the bias is added later.
    const bool scales = s.alpha != 1.0f;
    dnnl::post_ops after;
    if (s.accumulate) after.append_sum(1.0f);
    if (scales) {
      attributes.set_output_scales(0, {s.alpha});
      if (s.bias) after.append_binary(dnnl::algorithm::binary_add, bias);
    }
    if (after.len() > 0) attributes.set_post_ops(after);
    const dnnl::matmul::desc operation =
        s.bias && !scales ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out);
    state->description = dnnl::matmul::primitive_desc(operation, attributes, state->engine);
    state->product = dnnl::matmul(state->description);
    const auto add = [&](int index, Memory& memory, const Memory::desc& desc) {
      memory = Memory(desc, state->engine, nullptr);
      state->args[state->arg_count++] = {index, memory.get()};
    };
    add(DNNL_ARG_SRC, state->a, a);
    add(DNNL_ARG_WEIGHTS, state->b, b);
    add(DNNL_ARG_DST, state->out, out);
    add(DNNL_ARG_SCRATCHPAD, state->scratch, state->description.scratchpad_desc());
    if (s.bias) {
      const int after_sum = s.accumulate ? 1 : 0;  // the place among the post-operations
      const int place = DNNL_ARG_ATTR_MULTIPLE_POST_OP(after_sum) | DNNL_ARG_SRC_1;
      add(scales ? place : DNNL_ARG_BIAS, state->bias, bias);
    }
    return std::unique_ptr<Product>(new Product(std::move(state)));
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN cannot make a ", DTypeName(s.dtype),
                                            " product of ", s.m, " x ", s.n, " x ", s.k, ": ",
                                            error.what(), " (dnnl status ", error.status, ")"));
  }
}

size_t Product::scratch_bytes() const { return state_->description.scratchpad_desc().get_size(); }

absl::Status Product::Run(const void* a, const void* b, void* out, const void* bias,
                          void* scratch) {
  State& s = *state_;
  // oneDNN's memory objects are not const-correct; sources are only read.
  bool ok = dnnl_memory_set_data_handle(s.a.get(), const_cast<void*>(a)) == dnnl_success &&
            dnnl_memory_set_data_handle(s.b.get(), const_cast<void*>(b)) == dnnl_success &&
            dnnl_memory_set_data_handle(s.out.get(), out) == dnnl_success &&
            dnnl_memory_set_data_handle(s.scratch.get(), scratch) == dnnl_success;
  if (ok && s.bias.get(true) != nullptr) {
    ok = dnnl_memory_set_data_handle(s.bias.get(), const_cast<void*>(bias)) == dnnl_success;
  }
  if (ok) {
    ok = dnnl_primitive_execute(s.product.get(), s.stream.get(), s.arg_count, s.args) ==
         dnnl_success;
  }
  return ok ? absl::OkStatus() : absl::InternalError("oneDNN could not run a matrix product");
}

bool HasNativeBf16() {
  const unsigned isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const unsigned bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & bf16) == bf16;
}

void UseOneOpenMpThread() {
  thread_local bool limited = false;
  if (limited) return;
  omp_set_num_threads(1);
  limited = true;
}

}  // namespace megatrain
