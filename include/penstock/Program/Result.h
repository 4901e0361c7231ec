//===- Result.h - A value, or why there is none -----------------*- C++ -*-===//
//
// How the libraries without LLVM report bad input: no exceptions cross a
// library's border, and a failure says where, what, and what to do.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_PROGRAM_RESULT_H
#define PENSTOCK_PROGRAM_RESULT_H

#include "penstock/Program/Program.h"

#include <string>
#include <utility>
#include <variant>

namespace penstock {

/// Why something could not be done.
struct Failure {
  std::string message;
  Site site = {}; ///< the rank or instruction at fault, if there is one
};

/// A value or a Failure. Test it before use.
template <typename T>
class [[nodiscard]] Result {
public:
  Result(T value) : state(std::move(value)) {}
  Result(Failure failure) : state(std::move(failure)) {}

  explicit operator bool() const { return state.index() == 0; }
  T &operator*() { return std::get<0>(state); }
  const T &operator*() const { return std::get<0>(state); }
  T *operator->() { return &std::get<0>(state); }
  const T *operator->() const { return &std::get<0>(state); }
  const Failure &failure() const { return std::get<1>(state); }
  const std::string &message() const { return failure().message; }

private:
  std::variant<T, Failure> state;
};

/// Success, or a Failure.
using Status = Result<std::monostate>;
inline Status success() { return std::monostate{}; }

} // namespace penstock

#endif // PENSTOCK_PROGRAM_RESULT_H
