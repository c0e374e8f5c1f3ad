"""Finds an MPI library and its headers, with which jobs run on several processes. `@local_mpi//:enabled.bzl` says whether
they are there (MPI_ENABLED); the rest builds without. They are where Debian's libopenmpi-dev or libmpich-dev puts them
(`deploy/install-deps.sh --mpi`); MPI_HOME names another place, and `none` builds as where they are not."""

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "mpi",
    hdrs = glob(["include/**"]),
    defines = [
        # The bindings of C++ are another library.
        "OMPI_SKIP_MPICXX",
        "MPICH_SKIP_MPICXX",
    ],
    includes = ["include"],
    linkopts = [{linkopts}],
)
"""

_SYSTEM = "/usr/lib/x86_64-linux-gnu/"

def _mpi_configure_impl(ctx):
    home = ctx.os.environ.get("MPI_HOME", "")

    # Each place with what is linked; a place of one's own is also searched at run time.
    places = [(home, '"-L%s/lib", "-Wl,-rpath,%s/lib", "-lmpi"' % (home, home))] if home else [
        (_SYSTEM + "openmpi", '"-L%sopenmpi/lib", "-lmpi"' % _SYSTEM),
        (_SYSTEM + "mpich", '"-lmpich"'),
    ]
    for place, linkopts in places:
        if home != "none" and ctx.path(place + "/include/mpi.h").exists:
            ctx.file("enabled.bzl", "MPI_ENABLED = True\n")
            ctx.symlink(place + "/include", "include")
            ctx.file("BUILD", _BUILD.format(linkopts = linkopts))
            return
    ctx.file("enabled.bzl", "MPI_ENABLED = False\n")
    ctx.file("BUILD", "package(default_visibility = [\"//visibility:public\"])\n")

mpi_configure = repository_rule(
    implementation = _mpi_configure_impl,
    environ = ["MPI_HOME"],
    local = True,
)
