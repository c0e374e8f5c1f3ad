"""precompiled_header: system headers that the compiler reads once for many sources."""

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include <%s>\n" % name for name in ctx.attr.includes]))

    toolchain = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    action = "c++-compile"
    compiler = cc_common.get_tool_for_action(feature_configuration = features, action_name = action)
    files = [header]
    if "clang" not in compiler:
        # GCC takes X.h.gch in place of X.h if both were compiled with the same options, else it reads X.h.
        precompiled = ctx.actions.declare_file(header.basename + ".gch")
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts +
                                 ["-x", "c++-header"],
            source_file = header.path,
            output_file = precompiled.path,
        )
        ctx.actions.run(
            executable = compiler,
            arguments = cc_common.get_memory_inefficient_command_line(
                feature_configuration = features,
                action_name = action,
                variables = variables,
            ),
            env = cc_common.get_environment_variables(
                feature_configuration = features,
                action_name = action,
                variables = variables,
            ),
            inputs = depset([header], transitive = [toolchain.all_files]),
            outputs = [precompiled],
            mnemonic = "CppPrecompile",
            progress_message = "Precompiling " + header.short_path,
        )
        files.append(precompiled)
    return [DefaultInfo(files = depset(files))]

# NAME.h, which includes <A> for each A of `includes`, and NAME.h.gch, compiled with the options of the
# build and `copts`. A cc_library has both among its hdrs; the sources that depend on it are compiled
# with `-include NAME.h` (.bazelrc), which saves them the reading of these headers. They name what they
# include as ever: clang, which has no NAME.h.gch here, and other options read the text.
precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "includes": attr.string_list(mandatory = True),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)
