#!/bin/sh
# no-llvm-linked.sh BINARY: fails, and says why, when the binary needs LLVM or
# MLIR: neither a shared library nor a symbol of them may be there.
set -u
libraries=$(ldd "$1") || exit 2
if echo "$libraries" | grep -iE 'llvm|mlir'; then
  echo "$1 needs the libraries above" >&2
  exit 1
fi
symbols=$(nm -C "$1") || exit 2
if [ -z "$symbols" ]; then
  echo "$1 has no symbols to look at" >&2
  exit 2
fi
if echo "$symbols" | grep -m 5 -E '(^|[^A-Za-z_])(llvm|mlir)::'; then
  echo "$1 has the symbols above" >&2
  exit 1
fi
