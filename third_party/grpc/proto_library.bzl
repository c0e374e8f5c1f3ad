"""C++ libraries out of .proto files, by Debian's protoc and grpc_cpp_plugin."""

def _protos(label):
    return label + "_protos" if ":" in label else label + ":" + label.split("/")[-1] + "_protos"

def cc_api_library(name, srcs, root, deps = [], grpc = False, **kwargs):
    """A cc_library of the messages, and with `grpc` the services, of .proto files.

    Args:
      name: the library. NAME_protos are the files with all they import, for other such libraries.
      srcs: .proto files of this package.
      root: the directory that imports and includes are written from: "proto" for
        proto/megatrain/v1/job.proto, which is imported as "megatrain/v1/job.proto".
      deps: other libraries of this rule, of the same root, whose files are imported.
      grpc: whether the files hold services.
      **kwargs: for the cc_library.
    """
    package = native.package_name()
    if package != root and not package.startswith(root + "/"):
        fail("%s is not beneath %s" % (package, root))

    native.filegroup(
        name = name + "_protos",
        srcs = srcs + [_protos(dep) for dep in deps],
        visibility = ["//visibility:public"],
    )

    suffixes = [".pb"] + ([".grpc.pb"] if grpc else [])
    stems = [src[:-len(".proto")] for src in srcs]
    sources = [stem + suffix + ".cc" for stem in stems for suffix in suffixes]
    headers = [stem + suffix + ".h" for stem in stems for suffix in suffixes]
    plugin = ""
    if grpc:
        plugin = "--plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin) --grpc_out=$(GENDIR)/%s " % root
    native.genrule(
        name = name + "_cc",
        srcs = srcs + [_protos(dep) for dep in deps],
        outs = sources + headers,
        cmd = "protoc --proto_path=%s --cpp_out=$(GENDIR)/%s " % (root, root) + plugin + " ".join(["$(location %s)" % src for src in srcs]),
        message = "Generating",
        visibility = ["//visibility:private"],
    )

    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        strip_include_prefix = "/" + root,
        copts = ["-w"],
        deps = deps + ["@system//:grpc++" if grpc else "@system//:protobuf"],
        **kwargs
    )
