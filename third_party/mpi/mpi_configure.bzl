"""Finds an MPI library and its headers, with which jobs run on several processes. `@local_mpi//:enabled.bzl` says whether
they are there (MPI_ENABLED); the rest builds without. They are where Debian's libopenmpi-dev or libmpich-dev puts them
(`deploy/install-deps.sh --mpi`); MPI_HOME names another place, and `none` builds as where they are not. PMIX_ENABLED
says whether Debian's libpmix-dev is there too, with which processes of MPI are started."""

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

_PMIX_BUILD = """
cc_library(
    name = "pmix",
    hdrs = glob(["pmix/**"]),
    includes = ["pmix"],
    linkopts = ["-lpmix"],
)
"""

_SYSTEM = "/usr/lib/x86_64-linux-gnu/"
_PMIX = _SYSTEM + "pmix2/include"

def _mpi_configure_impl(ctx):
    home = ctx.os.environ.get("MPI_HOME", "")

    # Each place with what is linked; a place of one's own is also searched at run time.
    places = [(home, '"-L%s/lib", "-Wl,-rpath,%s/lib", "-lmpi"' % (home, home))] if home else [
        (_SYSTEM + "openmpi", '"-L%sopenmpi/lib", "-lmpi"' % _SYSTEM),
        (_SYSTEM + "mpich", '"-lmpich"'),
    ]
    for place, linkopts in places:
        if home != "none" and ctx.path(place + "/include/mpi.h").exists:
            # Only Open MPI (mpi-ext.h) is known to ask it. One of a place of its own may have another.
            has_pmix = not home and ctx.path(place + "/include/mpi-ext.h").exists and ctx.path(_PMIX + "/pmix_server.h").exists
            ctx.file("enabled.bzl", "MPI_ENABLED = True\nPMIX_ENABLED = %s\n" % has_pmix)
            ctx.symlink(place + "/include", "include")
            if has_pmix:
                ctx.symlink(_PMIX, "pmix")
            ctx.file("BUILD", _BUILD.format(linkopts = linkopts) + (_PMIX_BUILD if has_pmix else ""))
            return
    ctx.file("enabled.bzl", "MPI_ENABLED = False\nPMIX_ENABLED = False\n")
    ctx.file("BUILD", "package(default_visibility = [\"//visibility:public\"])\n")

mpi_configure = repository_rule(
    implementation = _mpi_configure_impl,
    environ = ["MPI_HOME"],
    local = True,
)
