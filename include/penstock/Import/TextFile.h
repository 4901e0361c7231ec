//===- TextFile.h - Other people's files, read whole ------------*- C++ -*-===//

#ifndef PENSTOCK_IMPORT_TEXTFILE_H
#define PENSTOCK_IMPORT_TEXTFILE_H

#include "penstock/Program/Result.h"

#include <string>

namespace penstock {

/// The whole file, or why it cannot be read; without the path.
Result<std::string> readTextFile(const std::string &path);

} // namespace penstock

#endif // PENSTOCK_IMPORT_TEXTFILE_H
