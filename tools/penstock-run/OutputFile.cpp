//===- OutputFile.cpp - The files of --trace and --profile ----------------===//

#include "OutputFile.h"

#include "penstock/Support/Temporary.h"

#include <fstream>
#include <iostream>

using namespace penstock;
using namespace penstock::run;

Result<OutputFile> OutputFile::make(const std::string &what,
                                    const std::string &path,
                                    const Options &options) {
  OutputFile file;
  file.what = what;
  file.path = path;
  std::error_code error, ignored;
  for (const std::string &input : {options.file, options.text})
    if (!input.empty() && std::filesystem::equivalent(path, input, ignored))
      return Failure{"the " + what + " would overwrite '" + input +
                     "'; name another file with --" + what + "=FILE"};
  // A device, a pipe, or what is open already has nothing to lose and must not
  // be replaced: all of that is written to as it is.
  const auto status = std::filesystem::status(path, ignored);
  const bool isOpen = path.starts_with("/dev/") || path.starts_with("/proc/");
  if (exists(status) && (isOpen || !is_regular_file(status))) {
    file.target = file.temporary = path;
    if (!is_directory(status))
      return file;
  } else {
    file.target = std::filesystem::weakly_canonical(path, error);
    if (error)
      return Failure{"cannot write the " + what + " to '" + path +
                     "': " + error.message() + "; name another file"};
    file.temporary = temporaryBeside(file.target);
    if (file.isWritable())
      return file;
  }
  return Failure{"cannot write the " + what + " to '" + path +
                 "'; name a file in a directory that exists"};
}

Fault OutputFile::write(
    JsonObject &json, const std::function<void(std::ostream &)> &print) const {
  std::ofstream out;
  if (path == "/dev/stdout") // opened anew, it would write over what is there
    print(std::cout);
  else if (path == "/dev/stderr")
    print(std::cerr);
  else {
    out.open(temporary);
    print(out);
    out.close();
  }
  std::error_code error;
  if (out && temporary != target)
    std::filesystem::rename(temporary, target, error);
  if (!out || error) {
    removeTemporary();
    return {Failed, "bad-output",
            "cannot write the " + what + " to '" + path +
                "'; is the disk full?"};
  }
  json.set(what, path);
  return {};
}

bool OutputFile::isWritable() const {
  const bool writable = std::ofstream(temporary).is_open();
  removeTemporary();
  return writable;
}

void OutputFile::removeTemporary() const {
  std::error_code error;
  if (temporary != target)
    std::filesystem::remove(temporary, error);
}

Fault run::writeTrace(const std::optional<OutputFile> &trace,
                      const runtime::Recorder &recorder, int32_t numRanks,
                      JsonObject &json) {
  bool began = false;
  for (int32_t r = 0; r < numRanks; ++r)
    began |= recorder.currentStep(r) >= 0;
  if (!trace || !began)
    return {};
  return trace->write(json, [&](std::ostream &os) { recorder.writeTrace(os); });
}
