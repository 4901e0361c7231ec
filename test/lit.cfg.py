# Tests of the tools: text in, text out, compared by FileCheck. Run them through
# `ninja check-penstock-lit`, or lit on the `test` folder of a build.
#
# PENSTOCK_VERIFY_ROUNDTRIP=1 in the environment makes every penstock-opt also
# print, parse and compare its input, as text and as bytecode.

import os

import lit.formats

config.name = "penstock"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["unit", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.penstock_build_dir, "test")

bin_dir = os.path.join(config.penstock_build_dir, "bin")
config.environment["PATH"] = os.pathsep.join(
    [bin_dir, config.llvm_tools_dir, config.environment.get("PATH", "")]
)

config.substitutions.append(("%python", config.python))
config.substitutions.append(("%examples", os.path.join(config.penstock_source_dir, "examples")))
config.substitutions.append(("%source", config.penstock_source_dir))
opt = "penstock-opt --verify-each"
if os.environ.get("PENSTOCK_VERIFY_ROUNDTRIP"):
    opt += " --verify-roundtrip"
config.substitutions.append((r"\bpenstock-opt\b", opt))
# As users call it: it verifies ops after parsing only.
config.substitutions.append(("%plain-opt", "penstock-opt"))

# Tests of a part that this build leaves out say so with REQUIRES.
for tool in os.listdir(bin_dir) if os.path.isdir(bin_dir) else []:
    config.available_features.add(tool)
