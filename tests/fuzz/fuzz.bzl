"""Fuzz targets that are tests too.

fuzz_target(name = "x_fuzz", srcs = ["x_fuzz.cc"], corpus = "x", deps = [...]) wants a source that
defines LLVMFuzzerTestOneInput and a folder of seeds, corpus/x.

    bazel test //tests/fuzz:x_fuzz                 runs every seed once, with any compiler
    bazel build --config=fuzz //tests/fuzz:x_fuzz  links libFuzzer, with ASan and UBSan; then
    bazel-bin/tests/fuzz/x_fuzz -max_total_time=60 /tmp/found tests/fuzz/corpus/x

libFuzzer keeps what it finds in the first folder it is given.
"""

def fuzz_target(name, srcs, corpus, deps = []):
    folder = "corpus/" + corpus
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs + select({
            "//tests/fuzz:fuzzing": [],
            "//conditions:default": ["//tests/fuzz:corpus_main.cc"],
        }),
        # As a test under --config=fuzz, the seeds are run once as well.
        args = select({
            "//tests/fuzz:fuzzing": ["-runs=0"],
            "//conditions:default": [],
        }) + [native.package_name() + "/" + folder],
        data = native.glob([folder + "/**"]),
        linkopts = select({
            "//tests/fuzz:fuzzing": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps,
    )
