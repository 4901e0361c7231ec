//===- CommandLine.h - Options by a table -----------------------*- C++ -*-===//
//
// `--name=value`, `--name value` and `--name`, with a help text made of the
// same table. Only the standard library is needed, as by all that runs
// programs.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUN_COMMANDLINE_H
#define PENSTOCK_RUN_COMMANDLINE_H

#include "penstock/Program/Result.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace penstock::run {

class CommandLine {
public:
  /// Options whose values are text, an integer, a number, or that have none.
  /// The value that the variable has is the default; the help shows it unless
  /// it is empty. `type` is what the help calls the value.
  void text(const char *name, const char *type, std::string &value,
            const char *help);
  template <typename Integer>
  void integer(const char *name, const char *type, Integer &value, Integer low,
               Integer high, const char *help);
  template <typename Integer>
  void integer(const char *name, const char *type,
               std::optional<Integer> &value, Integer low, Integer high,
               const char *help);
  /// From 0 to 1e9.
  void seconds(const char *name, double &value, const char *help);
  void flag(const char *name, bool &value, const char *help);
  /// The one argument that is no option.
  void argument(const char *type, std::string &value, const char *help);

  /// Fails with what is wrong and a way out.
  Status parse(const std::vector<std::string> &arguments);
  bool helpAsked() const { return help; }
  /// What the options are; `program` is its name.
  std::string describe(const std::string &program) const;

private:
  /// Sets the value; returns what it should be, when it is not that.
  using Setter = std::function<std::string(const std::string &)>;
  struct Option {
    std::string name, type, help, fallback;
    Setter set;
    bool given = false;

    bool isFlag() const { return type.empty(); }
  };
  void add(const char *name, const char *type, const char *help,
           std::string fallback, Setter set);
  template <typename Integer>
  static Setter integerSetter(std::function<void(Integer)> assign, Integer low,
                              Integer high);
  Option *find(const std::string &name);
  Failure unknown(const std::string &name) const;

  std::vector<Option> options;
  Option positional;
  bool help = false;
};

} // namespace penstock::run

#endif // PENSTOCK_RUN_COMMANDLINE_H
