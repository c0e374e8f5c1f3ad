"""Device code by nvcc, where the toolkit is."""

load("@local_cuda//:enabled.bzl", "CUDA_ENABLED", "CUDA_HOME")

# Binaries for sm_80 (also 8.6 and 8.9) and sm_90, PTX for what comes after them.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
]

def cuda_library(name, srcs, hdrs, headers, deps = [], **kwargs):
    """A cc_library of .cu files. `headers`: all files that they include, also through others.

    Without a toolkit there is no such target: what depends on it must ask CUDA_ENABLED.
    """
    if not CUDA_ENABLED:
        return
    objects = []
    for src in srcs:
        object = src[:-len(".cu")] + ".cu.o"
        native.genrule(
            name = name + "_" + src[:-len(".cu")],
            srcs = [src] + headers,
            outs = [object],
            cmd = " ".join(
                [CUDA_HOME + "/bin/nvcc -std=c++20 -O3 -lineinfo -I. -Xcompiler -fPIC,-Wall,-Wextra"] +
                ["$$(test $(COMPILATION_MODE) = dbg || echo -DNDEBUG)"] +  # as the host's compiler has it
                _ARCHITECTURES +
                ["-c $(location %s) -o $@" % src],
            ),
        )
        objects.append(object)
    native.cc_library(
        name = name,
        srcs = objects,
        hdrs = hdrs,
        # One runtime a program: each shared library would have its own.
        linkstatic = True,
        deps = deps + ["@local_cuda//:runtime"],
        **kwargs
    )
