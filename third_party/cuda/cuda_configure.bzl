"""Finds the CUDA toolkit. Where there is none, `@local_cuda//:enabled.bzl` says CUDA_ENABLED = False and the rest builds."""

def _cuda_configure_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = ctx.path(home + "/bin/nvcc")
    enabled = nvcc.exists and ctx.path(home + "/include/cuda_runtime.h").exists
    ctx.file("enabled.bzl", "CUDA_ENABLED = %s\nCUDA_HOME = \"%s\"\n" % (enabled, home if enabled else ""))
    if enabled:
        ctx.symlink(home + "/include", "include")
        ctx.symlink(home + "/lib64", "lib64")
        ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

# Static: it finds the driver at run time, so that the program starts where there is none.
cc_library(
    name = "runtime",
    linkopts = [
        "-L%s/lib64",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-lpthread",
    ],
    deps = [":headers"],
)
""" % home)
    else:
        ctx.file("BUILD", "package(default_visibility = [\"//visibility:public\"])\n")

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
