"""Finds the CUDA toolkit, and the headers of NCCL, cuDNN and cudnn-frontend. `@local_cuda//:enabled.bzl` says what there
is (CUDA_ENABLED, NCCL_ENABLED, CUDNN_ENABLED); the rest builds without. The headers are where
`deploy/install-deps.sh --cuda` puts them, or where compilers look; CUDNN_FRONTEND_HOME names another place, and `none`
builds as where they are not."""

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

# Static: it finds the driver at run time, so that the program starts where there is none.
cc_library(
    name = "runtime",
    linkopts = [
        "-L{home}/lib64",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-lpthread",
    ],
    deps = [":headers"],
)

cc_library(
    name = "cudnn_frontend",
    hdrs = glob({cudnn_headers}),
    includes = {cudnn_includes},
    deps = [":headers"],
)
"""

_INSTALLED = "/opt/megatrain"

def _first_with(ctx, directories, header):
    for directory in directories:
        if ctx.path(directory + "/" + header).exists:
            return directory
    return None

def _cuda_configure_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    frontend_home = ctx.os.environ.get("CUDNN_FRONTEND_HOME", "")

    # Where compilers look by themselves.
    system = [home + "/include", "/usr/local/include", "/usr/include", "/usr/include/x86_64-linux-gnu"]
    enabled = ctx.path(home + "/bin/nvcc").exists and ctx.path(home + "/include/cuda_runtime.h").exists
    named = [frontend_home + "/include"] if frontend_home else []
    frontend = _first_with(ctx, named + [_INSTALLED + "/cudnn-frontend/include"] + system, "cudnn_frontend.h")
    cudnn = _first_with(ctx, system + [_INSTALLED + "/cudnn/include"], "cudnn.h")
    cudnn_enabled = enabled and frontend_home != "none" and frontend != None and cudnn != None
    nccl_enabled = enabled and _first_with(ctx, system, "nccl.h") != None
    ctx.file("enabled.bzl", "CUDA_ENABLED = %s\nCUDNN_ENABLED = %s\nNCCL_ENABLED = %s\nCUDA_HOME = \"%s\"\n" %
                            (enabled, cudnn_enabled, nccl_enabled, home if enabled else ""))
    if not enabled:
        ctx.file("BUILD", "package(default_visibility = [\"//visibility:public\"])\n")
        return
    ctx.symlink(home + "/include", "include")
    ctx.symlink(home + "/lib64", "lib64")
    includes = []
    for name, place in [("cudnn_frontend", frontend), ("cudnn", cudnn)]:
        if cudnn_enabled and place not in system:
            ctx.symlink(place, name)
            includes.append(name)
    ctx.file("BUILD", _BUILD.format(
        home = home,
        cudnn_headers = [name + "/**" for name in includes],
        cudnn_includes = includes,
    ))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME", "CUDNN_FRONTEND_HOME"],
    local = True,
)
