//===- OutputFile.h - The files of --trace and --profile --------*- C++ -*-===//

#ifndef PENSTOCK_RUN_OUTPUTFILE_H
#define PENSTOCK_RUN_OUTPUTFILE_H

#include "Options.h"
#include "Outcome.h"

#include "penstock/Runtime/Recorder.h"

#include <filesystem>
#include <functional>
#include <iosfwd>

namespace penstock::run {

/// The file of --trace or --profile. It is replaced only by a complete one.
class OutputFile {
public:
  /// Finds out early whether it can be written; what is there stays. `what` is
  /// "trace" or "profile".
  static Result<OutputFile> make(const std::string &what,
                                 const std::string &path,
                                 const Options &options);

  /// Whether writing this would lose what the other one has written.
  bool replaces(const OutputFile &other) const {
    return temporary != target && target == other.target;
  }

  /// `print` writes it; `json` says so.
  Fault write(JsonObject &json,
              const std::function<void(std::ostream &)> &print) const;

private:
  bool isWritable() const;
  void removeTemporary() const;

  std::string what, path;
  std::filesystem::path target, temporary;
};

/// Writes the trace of a run that began. One of what hung or failed is worth as
/// much as one of success.
Fault writeTrace(const std::optional<OutputFile> &trace,
                 const runtime::Recorder &recorder, int32_t numRanks,
                 JsonObject &json);

} // namespace penstock::run

#endif // PENSTOCK_RUN_OUTPUTFILE_H
