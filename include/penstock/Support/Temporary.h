//===- Temporary.h - Files that take the place of others --------*- C++ -*-===//

#ifndef PENSTOCK_SUPPORT_TEMPORARY_H
#define PENSTOCK_SUPPORT_TEMPORARY_H

#include "penstock/Support/Hash.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <unistd.h>

namespace penstock {

/// A file beside `target`, to be renamed to it when it is complete. Its name is
/// of this process and this target alone, and no longer when the target's is as
/// long as a name can be.
inline std::filesystem::path
temporaryBeside(const std::filesystem::path &target) {
  const std::string text = target.string();
  Hasher hasher;
  hasher.add(text.size());
  hasher.add(text.data(), text.size());
  char name[64];
  std::snprintf(name, sizeof(name), ".penstock-%ld-%016llx",
                static_cast<long>(getpid()),
                static_cast<unsigned long long>(hasher.finish().low));
  return target.parent_path() / name;
}

} // namespace penstock

#endif // PENSTOCK_SUPPORT_TEMPORARY_H
