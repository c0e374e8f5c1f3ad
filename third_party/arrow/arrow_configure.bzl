"""Finds Apache Arrow's C++ libraries, with which Parquet is read. `@local_arrow//:enabled.bzl` says whether they are there
(ARROW_ENABLED); the rest builds without. They are where `deploy/install-deps.sh --parquet` puts them; ARROW_HOME names
another place, and `none` builds as where they are not."""

_BUILD = """package(default_visibility = ["//visibility:public"])

# Only the reader of Parquet links these: they export their own copies of OpenSSL and simdjson, whose names are those of
# Debian's other versions.
cc_library(
    name = "parquet",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = [
        "-L{home}/lib",
        "-l:{parquet}",
        "-l:{arrow}",
        "-Wl,-rpath,{home}/lib",
        "-pthread",
    ],
)
"""

_INSTALLED = "/opt/megatrain/arrow"

def _library(ctx, directory, stem):
    if not ctx.path(directory).exists:
        return None
    for path in ctx.path(directory).readdir():
        if path.basename.startswith(stem + ".so."):
            return path.basename
    return None

def _arrow_configure_impl(ctx):
    home = ctx.os.environ.get("ARROW_HOME", "") or _INSTALLED
    parquet = _library(ctx, home + "/lib", "libparquet")
    arrow = _library(ctx, home + "/lib", "libarrow")
    enabled = parquet != None and arrow != None and ctx.path(home + "/include/parquet/arrow/reader.h").exists
    ctx.file("enabled.bzl", "ARROW_ENABLED = %s\n" % enabled)
    if not enabled:
        ctx.file("BUILD", "package(default_visibility = [\"//visibility:public\"])\n")
        return
    ctx.symlink(home + "/include", "include")
    ctx.file("BUILD", _BUILD.format(home = home, parquet = parquet, arrow = arrow))

arrow_configure = repository_rule(
    implementation = _arrow_configure_impl,
    environ = ["ARROW_HOME"],
    local = True,
)
