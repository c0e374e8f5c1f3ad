"""Device code by nvcc, where the toolkit is."""

load("@local_cuda//:enabled.bzl", "CUDA_ENABLED", "CUDA_HOME")

# Binaries for Ampere, Ada, Hopper and both kinds of Blackwell, so that none of them is compiled for where it runs, and
# PTX for what comes after them. The kernels ask for nothing that a later PTX has: two of them for all six binaries take
# two thirds of the time of six. Packed small, a binary for every card takes less than those for two did.
_ARCHITECTURES = [
    "'-gencode=arch=compute_80,code=[sm_80,sm_86,sm_89]'",
    "'-gencode=arch=compute_90,code=[sm_90,sm_100,sm_120,compute_90]'",
    "--compress-mode=size",
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
                [CUDA_HOME + "/bin/nvcc -std=c++20 -O3 -I. -Xcompiler -fPIC,-Wall,-Wextra"] +
                # Asserts as the host's compiler has them. Line numbers, for profilers and sanitizers, are more than half of
                # a binary.
                ["$$(test $(COMPILATION_MODE) = dbg && echo -lineinfo || echo -DNDEBUG)"] +
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
